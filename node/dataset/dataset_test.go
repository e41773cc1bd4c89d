package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pnode/node/dataset/chunkstest"
	"pnode/planner/plan"
)

// counting is a text in which byte i is i mod 251.
func counting(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func storedText(text []byte, permille int) (chunkstest.Memory, plan.DataSpec) {
	m := chunkstest.Memory{}
	chunks, size, err := StoreChunks(context.Background(), m.Put, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		panic(err) // put cannot fail
	}
	return m, plan.DataSpec{Chunks: chunks, SizeBytes: size, HeldOutPermille: permille}
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

// micro and heldOut read windows that cannot fail.
func micro(t testing.TB, d *Dataset, step plan.Step, m plan.Micro, batch int) (tokens, targets []int32) {
	t.Helper()
	tokens, targets, err := d.Micro(context.Background(), step, m, batch)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, targets
}

func heldOut(t testing.TB, d *Dataset, index, batch int) (tokens, targets []int32) {
	t.Helper()
	tokens, targets, err := d.HeldOut(context.Background(), index, batch)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, targets
}

// TestMicroGolden fixes the windows: a change of the order would make resumed runs differ
// from uninterrupted ones.
func TestMicroGolden(t *testing.T) {
	d := openText(t, counting(10000), 100, Window{Seed: 42, Context: 4, StepRows: 16, Vocab: 256})
	for _, c := range []struct {
		step  plan.Step
		micro plan.Micro
		want  string
	}{
		{1, 0, "[85 86 87 88 63 64 65 66] [86 87 88 89 64 65 66 67]"},
		{1, 7, "[43 44 45 46 62 63 64 65] [44 45 46 47 63 64 65 66]"},
		{2, 0, "[162 163 164 165 213 214 215 216] [163 164 165 166 214 215 216 217]"},
		{1 << 34, 7, "[95 96 97 98 28 29 30 31] [96 97 98 99 29 30 31 32]"},
	} {
		tokens, targets := micro(t, d, c.step, c.micro, 2)
		if got := fmt.Sprint(tokens, targets); got != c.want {
			t.Errorf("step %d micro %d: %s, want %s", c.step, c.micro, got, c.want)
		}
	}
}

func TestMicroDoesNotDependOnTheCut(t *testing.T) {
	d := openText(t, counting(10000), 100, Window{Seed: 7, Context: 16, StepRows: 8, Vocab: 256})
	whole, wholeTargets := micro(t, d, 3, 0, 8)
	for _, batch := range []int{1, 2, 4} {
		var tokens, targets []int32
		for m := range 8 / batch {
			a, b := micro(t, d, 3, plan.Micro(m), batch)
			tokens, targets = append(tokens, a...), append(targets, b...)
		}
		if !reflect.DeepEqual(tokens, whole) || !reflect.DeepEqual(targets, wholeTargets) {
			t.Errorf("batch %d gives other sequences than batch 8", batch)
		}
	}
}

func TestMicroRefusesRowsBehindTheStep(t *testing.T) {
	d := openText(t, counting(1000), 100, Window{Context: 8, StepRows: 4, Vocab: 256})
	for _, c := range []struct {
		step plan.Step
		m    plan.Micro
	}{{1, 2}, {0, 0}, {1, -1}, {math.MaxUint64, 0}} {
		if _, _, err := d.Micro(context.Background(), c.step, c.m, 2); err == nil {
			t.Errorf("step %d micro %d of 2 rows: no error for 4 rows a step", c.step, c.m)
		}
	}
}

func TestTargetsAreTheNextTokens(t *testing.T) {
	d := openText(t, counting(5000), 100, Window{Seed: 1, Context: 8, StepRows: 4, Vocab: 256})
	for step := plan.Step(1); step <= 200; step++ {
		tokens, targets := micro(t, d, step, 0, 4)
		for i := range tokens {
			if targets[i] != (tokens[i]+1)%251 {
				t.Fatalf("step %d position %d: token %d, target %d", step, i, tokens[i], targets[i])
			}
		}
	}
}

func TestSeedsDrawDifferently(t *testing.T) {
	text := counting(100000)
	a, _ := micro(t, openText(t, text, 10, Window{Seed: 1, Context: 8, StepRows: 4, Vocab: 256}), 1, 0, 4)
	b, _ := micro(t, openText(t, text, 10, Window{Seed: 2, Context: 8, StepRows: 4, Vocab: 256}), 1, 0, 4)
	if reflect.DeepEqual(a, b) {
		t.Error("seeds 1 and 2 draw the same windows")
	}
}

func TestHeldOutIsDisjoint(t *testing.T) {
	text := counting(1000)
	d := openText(t, text, 100, Window{Context: 9, StepRows: 1, Vocab: 256}) // 100 held out: 11 windows
	if d.stream.train != 900 || d.heldOut != 100 {
		t.Fatalf("split %d + %d", d.stream.train, d.heldOut)
	}
	if n := d.HeldOutMicros(2, 100); n != 5 {
		t.Fatalf("%d window sets, want 5", n)
	}
	if n := d.HeldOutMicros(2, 3); n != 3 {
		t.Errorf("limit 3 gives %d", n)
	}
	next := 900
	for i := range 5 {
		tokens, targets := heldOut(t, d, i, 2)
		for j := range tokens {
			if tokens[j] != int32(text[next]) || targets[j] != int32(text[next+1]) {
				t.Fatalf("set %d position %d is not byte %d", i, j, next)
			}
			next++
		}
	}
}

func TestHeldOutRepeatsWhenSmall(t *testing.T) {
	d := openText(t, counting(1000), 0, Window{Context: 9, StepRows: 1, Vocab: 256}) // one window held out
	if d.heldOut != 10 || d.HeldOutMicros(4, 8) != 1 {
		t.Fatalf("%d tokens, %d sets", d.heldOut, d.HeldOutMicros(4, 8))
	}
	tokens, _ := heldOut(t, d, 0, 4)
	for row := 1; row < 4; row++ {
		if !reflect.DeepEqual(tokens[row*9:row*9+9], tokens[:9]) {
			t.Errorf("row %d differs from the only window", row)
		}
	}
}

func TestShortestText(t *testing.T) {
	w := Window{Context: 4, StepRows: 1, Vocab: 256}
	d := openText(t, counting(10), 0, w)
	tokens, targets := micro(t, d, 9, 0, 1)
	if fmt.Sprint(tokens, targets) != "[0 1 2 3] [1 2 3 4]" {
		t.Errorf("only window %v %v", tokens, targets)
	}
	m, spec := storedText(counting(9), 0)
	_, err := Open(m, spec, w)
	if !errors.Is(err, ErrTooShort) || !strings.Contains(err.Error(), "9 tokens") || !strings.Contains(err.Error(), "needs 10: 5 to train on and 5 held out") {
		t.Errorf("one byte less: %v", err)
	}
	m, spec = storedText(counting(1000), 999)
	if _, err = Open(m, spec, w); !errors.Is(err, ErrTooShort) {
		t.Errorf("everything held out: %v", err)
	}
}

// tokens makes a spec of tokens of a spec of bytes.
func tokens(s *plan.DataSpec, width, vocab int, end int32) {
	s.Tokens = &plan.TokenSpec{WidthBytes: width, Vocab: vocab, EndOfText: end}
}

func TestOpenRefuses(t *testing.T) {
	m, good := storedText(counting(1000), 100)
	for name, c := range map[string]struct {
		change func(*plan.DataSpec, *Window)
		cause  error
		says   string
	}{
		"too large":        {func(s *plan.DataSpec, _ *Window) { s.SizeBytes = MaxBytes + 1 }, ErrTooLarge, "--data"},
		"size over chunks": {func(s *plan.DataSpec, _ *Window) { s.SizeBytes = ChunkBytes + 1 }, ErrBadSpec, "chunks"},
		"size negative":    {func(s *plan.DataSpec, _ *Window) { s.SizeBytes = -1 }, ErrBadSpec, "-1 bytes"},
		"size least":       {func(s *plan.DataSpec, _ *Window) { s.SizeBytes = math.MinInt64 }, ErrBadSpec, "bytes"},
		"chunks missing":   {func(s *plan.DataSpec, _ *Window) { s.Chunks = nil }, ErrBadSpec, "0 chunks"},
		"share":            {func(s *plan.DataSpec, _ *Window) { s.HeldOutPermille = 1000 }, ErrBadSpec, "permille"},
		"share negative":   {func(s *plan.DataSpec, _ *Window) { s.HeldOutPermille = -1 }, ErrBadSpec, "permille"},
		"context 0":        {func(_ *plan.DataSpec, w *Window) { w.Context = 0 }, ErrBadSpec, "context of 0"},
		"context huge":     {func(_ *plan.DataSpec, w *Window) { w.Context = math.MaxInt }, ErrBadSpec, "context"},
		"context too long": {func(_ *plan.DataSpec, w *Window) { w.Context = 500 }, ErrTooShort, "--preset"},
		"no rows":          {func(_ *plan.DataSpec, w *Window) { w.StepRows = 0 }, ErrBadSpec, "0 sequences"},
		"rows huge":        {func(_ *plan.DataSpec, w *Window) { w.StepRows = math.MaxInt }, ErrBadSpec, "sequences"},
		"model of letters": {func(_ *plan.DataSpec, w *Window) { w.Vocab = 255 }, ErrVocabulary, "--preset"},
		"width 3":          {func(s *plan.DataSpec, _ *Window) { tokens(s, 3, 9, 0) }, ErrBadSpec, "of 3 bytes"},
		"width 0":          {func(s *plan.DataSpec, _ *Window) { tokens(s, 0, 9, 0) }, ErrBadSpec, "of 0 bytes"},
		"broken token":     {func(s *plan.DataSpec, _ *Window) { s.SizeBytes--; tokens(s, 2, 9, 0) }, ErrBadSpec, "whole tokens"},
		"no vocabulary":    {func(s *plan.DataSpec, _ *Window) { tokens(s, 2, 0, -1) }, ErrBadSpec, "vocabulary of 0"},
		"vocabulary":       {func(s *plan.DataSpec, _ *Window) { tokens(s, 2, 1<<16+1, 0) }, ErrBadSpec, "65536"},
		"end of text":      {func(s *plan.DataSpec, _ *Window) { tokens(s, 2, 9, 9) }, ErrBadSpec, "end-of-text"},
		"model too small":  {func(s *plan.DataSpec, _ *Window) { tokens(s, 2, 257, -1) }, ErrVocabulary, "at least 257"},
	} {
		spec, w := good, Window{Context: 8, StepRows: 1, Vocab: 256}
		c.change(&spec, &w)
		if _, err := Open(m, spec, w); !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.cause, c.says)
		}
	}
}

func TestMicroRefusesChunksThatAreNotWhatTheSpecSays(t *testing.T) {
	m, good := storedText(counting(1000), 100)
	for name, c := range map[string]struct {
		change func(*plan.DataSpec)
		cause  error
		says   string
	}{
		"size wrong":    {func(s *plan.DataSpec) { s.SizeBytes = 999 }, ErrBadSpec, "has 1000 bytes, want 999"},
		"chunk unknown": {func(s *plan.DataSpec) { s.Chunks = []plan.Hash{{1}} }, fs.ErrNotExist, "chunk 0 of 1"},
		"token over":    {func(s *plan.DataSpec) { tokens(s, 1, 3, 0) }, ErrBadSpec, "the vocabulary ends at 2"},
		"wide token":    {func(s *plan.DataSpec) { tokens(s, 4, 256, 0) }, ErrBadSpec, "the vocabulary ends at 255"},
	} {
		spec := good
		c.change(&spec)
		d, err := Open(m, spec, Window{Context: 8, StepRows: 1, Vocab: 256})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.Micro(context.Background(), 1, 0, 1); !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.cause, c.says)
		}
	}
}

// TestWideTokens reads windows of 2 and 4 byte tokens around the ends of chunks.
func TestWideTokens(t *testing.T) {
	for _, width := range []int{2, 4} {
		n := 2*ChunkBytes/width + 1000
		stream := make([]byte, 0, n*width)
		for i := range n {
			v := []byte{byte(i), byte(i >> 8), byte(i >> 16 % 64), 0}
			stream = append(stream, v[:width]...)
		}
		m, spec := storedText(stream, 10)
		tokens(&spec, width, 1<<min(8*width, 22), 7)
		d, err := Open(m, spec, Window{Seed: 3, Context: 1000, StepRows: int(spec.TokenCount() / 1000), Vocab: 1 << 22})
		if err != nil {
			t.Fatal(err)
		}
		samples, err := d.Step(1)
		if err != nil {
			t.Fatal(err)
		}
		for row, s := range samples {
			have, targets := micro(t, d, 1, plan.Micro(row), 1)
			for i := range have {
				want := (int(s.Token) + i) % d.spec.Vocab()
				if int(have[i]) != want || int(targets[i]) != (want+1)%d.spec.Vocab() {
					t.Fatalf("width %d row %d position %d: %d -> %d, want %d", width, row, i, have[i], targets[i], want)
				}
			}
		}
	}
}

// bigramEntropy is the plug-in estimate of the entropy of a byte given the one before it,
// in nats: the loss of the best model that sees one byte of context, on the text it was
// counted on. Fewer than two bytes give 0.
func bigramEntropy(text []byte) float64 {
	if len(text) < 2 {
		return 0
	}
	pairs := make([][256]int64, 256) // [previous][next]
	for i, next := range text[1:] {
		pairs[text[i]][next]++
	}
	sum := 0.0
	for _, row := range pairs {
		var total int64
		for _, n := range row {
			total += n
		}
		for _, n := range row {
			if n > 0 {
				sum -= float64(n) * math.Log(float64(n)/float64(total))
			}
		}
	}
	return sum / float64(len(text)-1)
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
		if got := bigramEntropy([]byte(text)); math.Abs(got-want) > 1e-12 {
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
	if got := fmt.Sprintf("%.4f", bigramEntropy(text)); got != "2.4526" {
		t.Errorf("bigram entropy %s nats", got)
	}
	m, spec := storedText(text, 100)
	d, err := Open(m, spec, Window{Context: 128, StepRows: 1, Vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	if d.stream.train+d.heldOut != int64(len(text)) || d.heldOut != 111539 {
		t.Errorf("split %d + %d of %d", d.stream.train, d.heldOut, len(text))
	}
}
