package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pnode/planner"
)

// counting is a text in which byte i is i mod 251.
func counting(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func storedText(text []byte, permille int) (chunkMap, planner.DataSpec) {
	m := chunkMap{}
	w := chunkWriter{put: m.put}
	if _, err := w.Write(text); err != nil {
		panic(err) // put cannot fail
	}
	if err := w.flush(); err != nil {
		panic(err)
	}
	w.spec.HeldOutPermille = permille
	return m, w.spec
}

func openText(t *testing.T, text []byte, permille int, w Window) *Dataset {
	t.Helper()
	m, spec := storedText(text, permille)
	d, err := Open(m, spec, w)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMicroGolden fixes the windows: a change of the generator would make resumed runs
// differ from uninterrupted ones.
func TestMicroGolden(t *testing.T) {
	d := openText(t, counting(10000), 100, Window{Seed: 42, Context: 4})
	for _, c := range []struct {
		step  planner.Step
		micro planner.Micro
		want  string
	}{
		{1, 0, "[171 172 173 174 44 45 46 47] [172 173 174 175 45 46 47 48]"},
		{1, 1, "[45 46 47 48 206 207 208 209] [46 47 48 49 207 208 209 210]"},
		{2, 0, "[229 230 231 232 114 115 116 117] [230 231 232 233 115 116 117 118]"},
		{1 << 40, 7, "[172 173 174 175 199 200 201 202] [173 174 175 176 200 201 202 203]"},
	} {
		tokens, targets := d.Micro(c.step, c.micro, 2)
		if got := fmt.Sprint(tokens, targets); got != c.want {
			t.Errorf("step %d micro %d: %s, want %s", c.step, c.micro, got, c.want)
		}
	}
}

func TestMicroDoesNotDependOnTheCut(t *testing.T) {
	d := openText(t, counting(10000), 100, Window{Seed: 7, Context: 16})
	whole, wholeTargets := d.Micro(3, 0, 8)
	for _, batch := range []int{1, 2, 4} {
		var tokens, targets []int32
		for m := range 8 / batch {
			a, b := d.Micro(3, planner.Micro(m), batch)
			tokens, targets = append(tokens, a...), append(targets, b...)
		}
		if !reflect.DeepEqual(tokens, whole) || !reflect.DeepEqual(targets, wholeTargets) {
			t.Errorf("batch %d gives other sequences than batch 8", batch)
		}
	}
}

func TestTargetsAreTheNextTokens(t *testing.T) {
	d := openText(t, counting(5000), 100, Window{Seed: 1, Context: 8})
	for step := range planner.Step(200) {
		tokens, targets := d.Micro(step, 0, 4)
		for i := range tokens {
			if targets[i] != (tokens[i]+1)%251 {
				t.Fatalf("step %d position %d: token %d, target %d", step, i, tokens[i], targets[i])
			}
		}
	}
}

// TestEveryWindowIsDrawnAlike counts the starts of 20,000 windows over the 21 there are:
// 952 each, with a standard deviation of 30.
func TestEveryWindowIsDrawnAlike(t *testing.T) {
	d := openText(t, counting(28), 0, Window{Seed: 5, Context: 3}) // 24 to train on: starts 0 to 20
	counts := map[int32]int{}
	for step := range planner.Step(1000) {
		for micro := range planner.Micro(20) {
			tokens, _ := d.Micro(step, micro, 1)
			counts[tokens[0]]++
		}
	}
	for start := range int32(21) {
		if n := counts[start]; n < 800 || n > 1100 {
			t.Errorf("window at %d drawn %d times of 20000", start, n)
		}
	}
	if len(counts) != 21 {
		t.Errorf("%d different windows, want 21", len(counts))
	}
}

func TestSeedsDrawDifferently(t *testing.T) {
	text := counting(100000)
	a, _ := openText(t, text, 10, Window{Seed: 1, Context: 8}).Micro(1, 0, 4)
	b, _ := openText(t, text, 10, Window{Seed: 2, Context: 8}).Micro(1, 0, 4)
	if reflect.DeepEqual(a, b) {
		t.Error("seeds 1 and 2 draw the same windows")
	}
}

func TestHeldOutIsDisjoint(t *testing.T) {
	text := counting(1000)
	d := openText(t, text, 100, Window{Context: 9}) // 100 held out: 11 windows
	if d.TrainBytes() != 900 || d.HeldOutBytes() != 100 {
		t.Fatalf("split %d + %d", d.TrainBytes(), d.HeldOutBytes())
	}
	if n := d.HeldOutMicros(2, 100); n != 5 {
		t.Fatalf("%d window sets, want 5", n)
	}
	if n := d.HeldOutMicros(2, 3); n != 3 {
		t.Errorf("limit 3 gives %d", n)
	}
	next := 900
	for i := range 5 {
		tokens, targets := d.HeldOut(i, 2)
		for j := range tokens {
			if tokens[j] != int32(text[next]) || targets[j] != int32(text[next+1]) {
				t.Fatalf("set %d position %d is not byte %d", i, j, next)
			}
			next++
		}
	}
}

func TestHeldOutRepeatsWhenSmall(t *testing.T) {
	d := openText(t, counting(1000), 0, Window{Context: 9}) // one window held out
	if d.HeldOutBytes() != 10 || d.HeldOutMicros(4, 8) != 1 {
		t.Fatalf("%d bytes, %d sets", d.HeldOutBytes(), d.HeldOutMicros(4, 8))
	}
	tokens, _ := d.HeldOut(0, 4)
	for row := 1; row < 4; row++ {
		if !reflect.DeepEqual(tokens[row*9:row*9+9], tokens[:9]) {
			t.Errorf("row %d differs from the only window", row)
		}
	}
}

func TestShortestText(t *testing.T) {
	d := openText(t, counting(10), 0, Window{Context: 4})
	tokens, targets := d.Micro(9, 9, 1)
	if fmt.Sprint(tokens, targets) != "[0 1 2 3] [1 2 3 4]" {
		t.Errorf("only window %v %v", tokens, targets)
	}
	m, spec := storedText(counting(9), 0)
	_, err := Open(m, spec, Window{Context: 4})
	if !errors.Is(err, ErrTooShort) || !strings.Contains(err.Error(), "9 bytes") || !strings.Contains(err.Error(), "needs 5") {
		t.Errorf("one byte less: %v", err)
	}
	m, spec = storedText(counting(1000), 999)
	if _, err = Open(m, spec, Window{Context: 4}); !errors.Is(err, ErrTooShort) {
		t.Errorf("everything held out: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	m, good := storedText(counting(1000), 100)
	for name, c := range map[string]struct {
		change func(*planner.DataSpec, *Window)
		cause  error
	}{
		"too large":        {func(s *planner.DataSpec, _ *Window) { s.SizeBytes = MaxBytes + 1 }, ErrTooLarge},
		"size over chunks": {func(s *planner.DataSpec, _ *Window) { s.SizeBytes = ChunkBytes + 1 }, ErrBadSpec},
		"size wrong":       {func(s *planner.DataSpec, _ *Window) { s.SizeBytes = 999 }, ErrBadSpec},
		"size negative":    {func(s *planner.DataSpec, _ *Window) { s.SizeBytes = -1 }, ErrBadSpec},
		"size least":       {func(s *planner.DataSpec, _ *Window) { s.SizeBytes = math.MinInt64 }, ErrBadSpec},
		"chunks missing":   {func(s *planner.DataSpec, _ *Window) { s.Chunks = nil }, ErrBadSpec},
		"chunk unknown":    {func(s *planner.DataSpec, _ *Window) { s.Chunks = []planner.Hash{{1}} }, fs.ErrNotExist},
		"share":            {func(s *planner.DataSpec, _ *Window) { s.HeldOutPermille = 1000 }, ErrBadSpec},
		"share negative":   {func(s *planner.DataSpec, _ *Window) { s.HeldOutPermille = -1 }, ErrBadSpec},
		"context 0":        {func(_ *planner.DataSpec, w *Window) { w.Context = 0 }, ErrBadSpec},
		"context huge":     {func(_ *planner.DataSpec, w *Window) { w.Context = math.MaxInt }, ErrBadSpec},
		"context too long": {func(_ *planner.DataSpec, w *Window) { w.Context = 500 }, ErrTooShort},
	} {
		spec, w := good, Window{Context: 8}
		c.change(&spec, &w)
		if _, err := Open(m, spec, w); !errors.Is(err, c.cause) {
			t.Errorf("%s: %v, want %v", name, err, c.cause)
		}
	}
}

func TestBigramEntropy(t *testing.T) {
	for text, want := range map[string]float64{
		"":     0,
		"a":    0,
		"aaaa": 0,
		"abab": 0,
		// a is followed by a, b, b; b by a: 3/4 of the entropy of (1/3, 2/3).
		"aabab": 0.75 * (math.Log(3) - 2./3*math.Log(2)),
	} {
		if got := BigramEntropy([]byte(text)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestTinyShakespeare needs the text: PNODE_TEST_DATA names its folder.
func TestTinyShakespeare(t *testing.T) {
	dir := os.Getenv("PNODE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(dir, "tinyshakespeare.txt")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("set PNODE_TEST_DATA to the folder of tinyshakespeare.txt")
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%.4f", BigramEntropy(text)); got != "2.4526" {
		t.Errorf("bigram entropy %s nats", got)
	}
	c, err := Collect([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := chunkMap{}
	spec, err := c.Store(context.Background(), m.put)
	if err != nil {
		t.Fatal(err)
	}
	spec.HeldOutPermille = 100
	d, err := Open(m, spec, Window{Context: 128})
	if err != nil {
		t.Fatal(err)
	}
	if d.TrainBytes()+d.HeldOutBytes() != int64(len(text)) || d.HeldOutBytes() != 111539 {
		t.Errorf("split %d + %d of %d", d.TrainBytes(), d.HeldOutBytes(), len(text))
	}
}

func BenchmarkMicro(b *testing.B) {
	m, spec := storedText(counting(1<<20), 100)
	d, err := Open(m, spec, Window{Context: 256})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(8 * 256)
	for b.Loop() {
		d.Micro(1, 2, 8)
	}
}
