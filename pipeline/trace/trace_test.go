package trace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

func action(t testing.TB, text string) schedule.Action {
	t.Helper()
	a, err := schedule.ParseAction(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// record writes spans as a node would and gives the file.
func record(t *testing.T, spans ...Timed) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.json")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r.Name(0, `worker 0: "cpu"`, "peer-0")
	for _, s := range spans {
		r.Add(s, r.base.Add(time.Duration(s.Start)), r.base.Add(time.Duration(s.End)))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// span is in nanoseconds since the recorder's start.
func span(t *testing.T, text string, start, end int64) Timed {
	return Timed{Generation: 2, Step: 7, Action: action(t, text), Start: start, End: end}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	b := record(t, span(t, "0F0", 1001, 5003), span(t, "r1/2REDUCE", 2000, 9000), span(t, "STEP", 6000, 9500))
	got, err := Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	keys := got.Keys()
	if len(keys) != 1 || keys[0] != (Key{2, 7}) || got.Names[0] != `worker 0: "cpu"` || got.Peers[0] != "peer-0" {
		t.Fatalf("%v of %v", keys, got.Names)
	}
	line := got.Timeline(keys[0])
	if len(line.Workers) != 1 || len(line.Workers[0]) != 3 || line.PeakLive[0] != 1 {
		t.Fatalf("%+v", line)
	}
	if line.Makespan != 8499 {
		t.Errorf("it takes %d ns, want 8499", line.Makespan)
	}
	cut, err := Read(bytes.NewReader(b[:len(b)-60]))
	if err != nil || len(cut.Spans) != 2 {
		t.Errorf("cut off it has %d spans (%v), want 2", len(cut.Spans), err)
	}
}

func TestANilRecorderTakesNothing(t *testing.T) {
	var r *Recorder
	r.Name(0, "x", "")
	r.Add(Timed{}, time.Time{}, time.Time{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{}", "7", `[7]`, `[{"ph":"B"}]`, `[{"ph":"X","name":"0F0","pid":-1}]`, `[{"ph":"X","name":"magic"}]`,
		`[{"ph":"X","name":"0F0","ts":-1}]`, `[{"ph":"X","name":"0F0","ts":1.2345,"dur":1}]`, `[{"ph":"X","name":"0F0","dur":1}]`, `[{"ph":"X","name":"0F0","ts":1e300}]`, `[{"ph":"X","name":"0F0","pid":99999999}]`,
		`[{"ph":"X","cat":"copy","name":"a\"b","ts":1,"dur":1}]`, `[{"ph":"X","cat":"copy","name":"a","tid":-1,"ts":1,"dur":1}]`,
	} {
		if got, err := Read(strings.NewReader(text)); !errors.Is(err, ErrBadTrace) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
}

// TestMergeFindsHowFarClocksAreApart has messages take at least 10 each way, between three
// nodes whose clocks are 1000 and 250 ahead of the first one's.
func TestMergeFindsHowFarClocksAreApart(t *testing.T) {
	ahead := []int64{0, 1000, 250}
	traces := make([]Trace, 3)
	say := func(node int, text string, at int64) {
		traces[node].Spans = append(traces[node].Spans, Timed{Generation: 1, Step: 1, Worker: node, Action: action(t, text), Start: at + ahead[node] - 1, End: at + ahead[node]})
	}
	say(0, "0SA0", 100)
	say(1, "1RA0", 110)
	say(0, "0SA1", 120)
	say(1, "1RA1", 190)
	say(1, "1SA0", 130)
	say(2, "2RA0", 140)
	say(2, "2SG0", 200)
	say(1, "1RG0", 210)
	say(1, "1SG0", 220)
	say(0, "0RG0", 230)
	for _, s := range Merge(traces...).Spans {
		if want := s.Start + 1; s.End != want || s.End > 230 || s.End < 100 {
			t.Errorf("%v ends at %d", s.Action, s.End)
		}
	}
	if got := shifts(traces); got[0] != 0 || got[1] != -1000 || got[2] != -250 {
		t.Errorf("clocks are moved by %v", got)
	}
	if got := shifts([]Trace{traces[0], {}}); got[1] != 0 {
		t.Errorf("a node without messages is moved by %d", got[1])
	}
}

func TestJoinedFilesAreOne(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i, spans := range [][]Timed{{span(t, "0F0", 10_000, 20_000)}, {span(t, "1F0", 30_000, 40_000)}} {
		files = append(files, filepath.Join(dir, string(rune('a'+i))))
		if err := os.WriteFile(files[i], record(t, spans...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	whole := filepath.Join(dir, "whole")
	if err := Join(whole, append(files, filepath.Join(dir, "absent"))...); err != nil {
		t.Fatal(err)
	}
	got, err := readFile(whole)
	if err != nil || len(got.Spans) != 2 || len(got.Names) != 1 || len(got.Peers) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestCopiesAreJoined: they go from file to file as they are, and are no part of timelines.
func TestCopiesAreJoined(t *testing.T) {
	dir := t.TempDir()
	path, whole := filepath.Join(dir, "a"), filepath.Join(dir, "whole")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) time.Time { return r.base.Add(d) }
	r.Add(Timed{Generation: 2, Step: 7, Action: action(t, "3F1")}, at(0), at(5000))
	upload := TimedCopy{Name: "upload activation 2", Generation: 2, Step: 7, Worker: 4}
	r.AddCopy(upload, plan.StageID{Replica: 1, Stage: 3}, at(1000), at(4500))
	if err := errors.Join(r.Close(), Join(whole, path)); err != nil {
		t.Fatal(err)
	}
	got, err := readFile(whole)
	if err != nil || len(got.Copies) != 1 || len(got.Spans) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	start := got.Spans[0].Start + 1000
	want := TimedCopy{Name: "upload activation 2, replica 1, stage 3", Generation: 2, Step: 7, Worker: 4, Row: 1_001_003, Start: start, End: start + 3500}
	if got.Copies[0] != want {
		t.Errorf("%+v, want %+v", got.Copies[0], want)
	}
	if line := got.Timeline(Key{2, 7}); len(line.Workers) != 1 || len(line.Workers[0]) != 1 {
		t.Errorf("the timeline has %v", line.Workers)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`[{}, {"name":"0F0","ph":"X","ts":1.5,"dur":2,"pid":0,"args":{"generation":1,"step":3}}]`))
	f.Add([]byte(`[{"ph":"M","pid":3,"args":{"name":"w"}},`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`[{"name":"upload gradient 1","cat":"copy","ph":"X","ts":1,"dur":2,"pid":0,"tid":1000001,"args":{"step":3}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, k := range got.Keys() {
			got.Timeline(k)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	r, err := Create(filepath.Join(b.TempDir(), "trace.json"))
	if err != nil {
		b.Fatal(err)
	}
	s, now := Timed{Step: 1, Action: action(b, "2F0")}, time.Now()
	for b.Loop() {
		r.Add(s, now, now)
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}

// TestSpansAreHandedOn: those of every so many steps and of the ones after them, with and without a file.
func TestSpansAreHandedOn(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "t.json")} {
		var steps []plan.Step
		r, err := Open(path, 3, func(s Span) {
			steps = append(steps, s.Step)
			if s.Category != schedule.Forward.String() || s.End-s.Start != int64(time.Second) || s.Worker != 1 {
				t.Errorf("%+v", s)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Name(1, "worker 1", "p")
		begin := time.Now()
		for step := range plan.Step(7) {
			r.Add(Timed{Worker: 1, Generation: 1, Step: step + 1, Action: schedule.Action{Op: schedule.Forward}, Segments: 1}, begin, begin.Add(time.Second))
		}
		if err := r.Close(); err != nil || !slices.Equal(steps, []plan.Step{1, 3, 4, 6, 7}) {
			t.Errorf("%q: steps %v, %v", path, steps, err)
		}
	}
}
