package export

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// made returns the event of a step.
func made(step plan.Step, generation plan.Generation) api.Event {
	norm := 0.5
	return api.Event{Kind: api.KindStep, Step: step, Steps: 100, Generation: generation, Loss: 4 - float64(step)/10, LearningRate: 0.001, GradientNorm: &norm, TokensPerS: 100, StepS: 0.25, MemoryBytes: 1 << 20}
}

// words collects warnings.
type words struct {
	mu   sync.Mutex // guards said
	said []string
}

func (w *words) warn(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func opened(t *testing.T, o Options) (*Exports, *words) {
	t.Helper()
	var w words
	o.Warn = w.warn
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, &w
}

// TestCSV: a line a step, with all digits, empty where nothing is known; a later start goes on after the last whole line.
func TestCSV(t *testing.T) {
	path, run := filepath.Join(t.TempDir(), "run.csv"), t.TempDir()
	e, w := opened(t, Options{CSV: path, Dir: run})
	held := 3.75
	first := made(1, 1)
	first.HeldOut = &held
	e.Event(first)
	e.Event(api.Event{Kind: api.KindPlan})
	e.Event(api.Event{Kind: api.KindStep, Step: 2, Generation: 1, Loss: 1. / 3})
	e.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, "1700000000.000,1,3,3."...), 0o600); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	again, _ := opened(t, Options{CSV: path, Dir: run})
	again.Event(made(2, 2))
	again.Close()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		columns,
		{"", "1", "1", "3.9", "3.75", "", "0.001", "0.5", "100", "0.25", "1048576"},
		{"", "1", "2", "0.3333333333333333", "", "", "", "", "", "", ""},
		{"", "2", "2", "3.8", "", "", "0.001", "0.5", "100", "0.25", "1048576"},
	}
	for i := range rows {
		if i > 0 {
			if !strings.Contains(rows[i][0], ".") {
				t.Errorf("row %d came at %q", i, rows[i][0])
			}
			rows[i][0] = ""
		}
	}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) || len(w.said) > 0 {
		t.Errorf("got %q and %q, want %q", rows, w.said, want)
	}
}

// TestAnotherRunsNumbersStayAlone: a new run is refused another's files, wherever they were moved, and a run goes on in its own. Who wrote nothing
// stands in nobody's way.
func TestAnotherRunsNumbersStayAlone(t *testing.T) {
	at := t.TempDir()
	first, second := t.TempDir(), t.TempDir()
	table, board := filepath.Join(at, "run.csv"), filepath.Join(at, "tb")
	write := func(run string, events ...api.Event) error {
		e, err := Open(Options{CSV: table, TensorBoard: board, Dir: run, Warn: func(text string) { t.Error(text) }})
		if err != nil {
			return err
		}
		for _, event := range events {
			e.Event(event)
		}
		e.Close()
		return nil
	}
	for _, events := range [][]api.Event{nil, {made(1, 1)}, {made(2, 2)}} { // the start without a step may be of any run
		if err := write(first, events...); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(second, made(1, 1)); err == nil || !strings.Contains(err.Error(), "--tensorboard is "+board+": it holds events.out.tfevents.") {
		t.Errorf("the folder of another run: %v", err)
	}
	if err := os.Rename(board, board+"1"); err != nil {
		t.Fatal(err)
	}
	if err := write(second, made(1, 1)); err == nil || !strings.Contains(err.Error(), "--csv is "+table+": it holds the rows of another run, or of this one from before its folder kept exports.json: name another file") {
		t.Errorf("the file of another run: %v", err)
	}
	if err := os.Rename(table, table+"1"); err != nil {
		t.Fatal(err)
	}
	if err := write(second, made(5, 1)); err != nil {
		t.Fatal(err)
	}
	if err := write(first, made(3, 3)); err == nil { // in the files' old places
		t.Error("the first run went on in the second's files")
	}
	table, board = table+"1", board+"1"
	if err := write(first, made(3, 3)); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(table)
	files, _ := filepath.Glob(filepath.Join(board, "*"))
	if lines := strings.Count(string(text), "\n"); err != nil || lines != 4 || len(files) < 1 {
		t.Errorf("%v, %d lines and %d event files", err, lines, len(files))
	}
}

// TestOwnFilesThatAreNotKnown: a list that cannot be read is an error of its own, not of the run's file, and what each error says to do works.
func TestOwnFilesThatAreNotKnown(t *testing.T) {
	run, at := t.TempDir(), t.TempDir()
	list, table := filepath.Join(run, OwnFile), filepath.Join(at, "run.csv")
	write := func(path string) error {
		e, err := Open(Options{CSV: path, Dir: run, Warn: func(text string) { t.Error(text) }})
		if err == nil {
			e.Event(made(1, 1))
			e.Close()
		}
		return err
	}
	if err := write(table); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"damaged": `{"marks":["`, "empty": "", "huge": strings.Repeat(" ", maxOwnBytes+1)} {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := write(table); err == nil || !strings.HasPrefix(err.Error(), list+" does not say which files") || !strings.Contains(err.Error(), "remove it and name other files") {
			t.Errorf("%s: %v", name, err)
		}
		if e, err := Open(Options{Dir: run}); err != nil {
			t.Errorf("%s, without such files: %v", name, err)
		} else {
			e.Close()
		}
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	if err := write(table); err == nil || !strings.Contains(err.Error(), "from before its folder kept exports.json: name another file") {
		t.Errorf("no list: %v", err)
	}
	if after, err := os.ReadFile(table); err != nil || !slices.Equal(after, before) {
		t.Errorf("what was refused holds %q, %v", after, err)
	}
	if err := write(filepath.Join(at, "next.csv")); err != nil {
		t.Error(err)
	}
}

// TestFilesStayTheRunsOwn over more starts than are remembered.
func TestFilesStayTheRunsOwn(t *testing.T) {
	at, run := t.TempDir(), t.TempDir()
	for i := range 2 * mostMarks {
		e, err := Open(Options{CSV: filepath.Join(at, "run.csv"), TensorBoard: filepath.Join(at, "tb"), Dir: run, Warn: func(text string) { t.Error(text) }})
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		e.Event(made(plan.Step(i+1), 1))
		e.Close()
	}
}

// TestOpenRefuses: what cannot be written is said before a run begins, with the setting, its value and what helps.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.csv")
	if err := os.WriteFile(other, []byte("name,age\nada,36\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{CSV: other}, "--csv is " + other + ": it holds other columns: name another file"},
		{Options{CSV: filepath.Join(dir, "none", "r.csv")}, "name a file in a folder that is there"},
		{Options{TensorBoard: other}, "--tensorboard is " + other},
		{Options{MLflow: "ftp://x"}, "--mlflow: want the URL of an MLflow server"},
	} {
		if _, err := Open(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "name,age\nada,36\n" {
		t.Errorf("the file of others holds %q, %v", text, err)
	}
}

// disk is a file on a disk that is full from some size on.
type disk struct {
	mu      sync.Mutex // guards what follows
	content []byte
	at, max int64
}

// resize makes the disk larger.
func (d *disk) resize(size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.max = size
}

// holds returns what is in the file.
func (d *disk) holds() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.content)
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int(min(int64(len(b)), d.max-d.at))
	d.content = append(d.content[:d.at], b[:n]...)
	d.at += int64(n)
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func (d *disk) Seek(to int64, _ int) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = to
	return to, nil
}

func (d *disk) Truncate(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.content = d.content[:size]
	return nil
}

func (d *disk) Close() error { return nil }

// TestFullDisk: one warning; the file has whole records alone, and all of them once there is room.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w words
		d := &disk{max: 100}
		e := serve([]sink{&table{path: "r.csv", files: &own{}, growing: &growing{file: d, regular: true}, headed: true}}, w.warn)
		for step := range plan.Step(10) {
			e.Event(made(step+1, 1))
		}
		synctest.Wait()
		if text := d.holds(); text != "" && !strings.HasSuffix(text, "\n") {
			t.Errorf("the file ends within a line: %q", text)
		}
		time.Sleep(2 * retryEvery) // tried again in vain
		d.resize(1 << 20)
		time.Sleep(2 * retryEvery)
		e.Event(made(11, 1))
		e.Close()
		lines := strings.Split(strings.TrimSuffix(d.holds(), "\n"), "\n")
		if len(lines) != 11 || !strings.Contains(lines[10], ",1,11,2.9,") {
			t.Errorf("%d lines, %q", len(lines), lines)
		}
		if len(w.said) != 2 || !strings.Contains(w.said[0], "--csv r.csv: no space left on device; the run goes on") || !strings.Contains(w.said[1], "written again") {
			t.Errorf("said %q", w.said)
		}
	})
}

// TestFullDiskIsBounded: records that find no room in memory either are counted.
func TestFullDiskIsBounded(t *testing.T) {
	d := &disk{}
	g := &growing{file: d, regular: true}
	record := make([]byte, mostHeld/4)
	for range 10 {
		g.add(record)
		if err := g.flush(); err == nil || len(g.waits) > mostHeld {
			t.Fatalf("%d bytes wait: %v", len(g.waits), err)
		}
	}
	d.resize(1 << 30)
	if err := g.flush(); err == nil || err.Error() != "6 records are missing: there was no room for them" || len(d.holds()) != mostHeld {
		t.Errorf("%d bytes, %v", len(d.holds()), err)
	}
	if err := g.flush(); err != nil {
		t.Error(err)
	}
}

// stuck is a sink that takes nothing until it is let go.
type stuck struct{ free chan struct{} }

func (s stuck) name() string  { return "--stuck" }
func (s stuck) batches() bool { return false }
func (s stuck) take(Row)      {}
func (s stuck) flush(ctx context.Context) error {
	select {
	case <-s.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
func (s stuck) close(context.Context) error { return nil }

// TestEventNeverWaits: a sink that hangs holds neither events up nor, for longer than closeTime, the end. What is missing is said.
func TestEventNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w words
		e := serve([]sink{stuck{make(chan struct{})}}, w.warn)
		begun := time.Now()
		for step := range plan.Step(2*mostQueued + 1) {
			e.Event(made(step+1, 1))
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("events took %v", took)
		}
		e.Close()
		if took := time.Since(begun); took > closeTime {
			t.Errorf("the end took %v", took)
		}
		if last := len(w.said) - 1; last < 0 || !strings.Contains(w.said[last], "rows, for which it was too slow") {
			t.Errorf("said %q", w.said)
		}
	})
}

// TestPipeThatNobodyReads holds neither events up nor, for longer than closeTime, the end; other sinks lose nothing by it.
func TestPipeThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w words
		r, out := io.Pipe()
		d := &disk{max: 1 << 20}
		e := serve([]sink{&table{path: "pipe", files: &own{}, growing: &growing{file: pipe{out}}, headed: true}, &table{path: "r.csv", files: &own{}, growing: &growing{file: d, regular: true}, headed: true}}, w.warn)
		begun := time.Now()
		e.Event(made(1, 1))
		e.Close()
		if took := time.Since(begun); took != closeTime {
			t.Errorf("the end took %v", took)
		}
		if want := []string{"--csv pipe: it takes nothing, and what was not written is lost"}; !slices.Equal(w.said, want) {
			t.Errorf("said %q, want %q", w.said, want)
		}
		if lines := strings.Count(d.holds(), "\n"); lines != 1 {
			t.Errorf("the other file has %d lines", lines)
		}
		r.Close() // as the end of the process does
		e.work.Wait()
	})
}

// TestNoExports: without any sink events go nowhere.
func TestNoExports(t *testing.T) {
	var none *Exports
	none.Event(made(1, 1))
	none.Close()
	e, _ := opened(t, Options{})
	e.Event(made(1, 1))
}

// TestTensorBoardFiles: a file for each start. Steps that are done again come after a new start of the session; the numbers of outer steps,
// which may come late, do not.
func TestTensorBoardFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tb")
	e, w := opened(t, Options{TensorBoard: dir})
	drift := 0.5
	for _, event := range []api.Event{
		made(1, 1), made(2, 1), made(3, 1), {Kind: api.KindOuter, Step: 2, Outer: &api.OuterStep{Drift: &drift}}, {Kind: api.KindState}, made(2, 2), made(3, 2),
	} {
		e.Event(event)
	}
	e.Close()
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*.pnode"))
	if err != nil || len(files) != 1 || len(w.said) > 0 {
		t.Fatalf("%q, %v, %q", files, err, w.said)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	starts := strings.Count(string(text), "\x3a\x02\x08\x01") // session_log {status: START}
	if got := strings.Count(string(text), tagLoss); got != 5 || starts != 2 || strings.Count(string(text), tagDrift) != 1 {
		t.Errorf("%d losses and %d starts", got, starts)
	}
}

// TestPipe: a file that is no regular one gets the rows as they come.
func TestPipe(t *testing.T) {
	r, out := io.Pipe()
	lines := make(chan string)
	go func() {
		text, _ := io.ReadAll(r) // ends with the writer
		lines <- string(text)
	}()
	g := &growing{file: pipe{out}}
	g.add([]byte("a\n"))
	g.add([]byte("b\n"))
	if err := errors.Join(g.flush(), g.file.Close()); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; got != "a\nb\n" {
		t.Errorf("got %q", got)
	}
}

type pipe struct{ *io.PipeWriter }

func (pipe) Seek(int64, int) (int64, error) { return 0, errors.New("a pipe") }
func (pipe) Truncate(int64) error           { return errors.New("a pipe") }

// BenchmarkEvent measures what a step pays for two files.
func BenchmarkEvent(b *testing.B) {
	dir := b.TempDir()
	e, err := Open(Options{CSV: filepath.Join(dir, "r.csv"), TensorBoard: filepath.Join(dir, "tb"), Warn: func(string) {}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	event := made(1, 1)
	for b.Loop() {
		e.Event(event)
	}
}
