package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// crashDir tells the test binary to be the process that gets killed.
const crashDir = "PNODE_CHECKPOINT_CRASH_DIR"

// crashEnded is its exit status when it ends by an error.
const crashEnded = 3

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		err := writeForever(dir, os.Stdout)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(crashEnded)
	}
	flag.Parse()
	if testing.Short() {
		storeInMemory()
	}
	os.Exit(m.Run())
}

// storeInMemory puts the stores of tests where syncing takes no time, if there is room. What a disk does
// differently the tests in full see.
func storeInMemory() {
	const shm = "/dev/shm"
	if free, err := disk.FreeBytes(shm); err == nil && free > 4*DefaultReserveBytes {
		_ = os.Setenv("TMPDIR", shm)
	}
}

// crashState is the state of a step's only layer: sizes from one byte to two chunks.
func crashState(step plan.Step) []byte {
	return noise(uint64(step), 1+int(step)*700_001%(ChunkBytes+99))
}

// writeForever commits step after step from the newest on, and tells of each on out once
// it is durable.
func writeForever(dir string, out io.Writer) (err error) {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	all, err := s.Manifests()
	if err != nil {
		return err
	}
	step := plan.Step(1)
	if len(all) > 0 {
		step = all[0].Step + 1
	}
	for ; ; step++ {
		if err := crashStep(s, step); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, uint64(step)); err != nil {
			return err
		}
	}
}

func crashStep(s *Store, step plan.Step) error {
	w := s.Begin()
	defer w.Abort()
	hashes, size, err := w.WriteLayer(context.Background(), bytes.NewReader(crashState(step)), Cut{})
	if err != nil {
		return err
	}
	text := fmt.Append(nil, uint64(step))
	if err := s.Bucket("log").Write([]Op{{Key: text, Value: text}, {Key: []byte("last"), Value: text}}); err != nil {
		return err
	}
	m := Manifest{Run: "crash", Step: step, Generation: 1, Layers: []LayerState{{SizeBytes: size, Chunks: hashes}}}
	if err := commit(w, m); err != nil {
		return err
	}
	if step%5 == 0 {
		if err := s.Retain(8); err != nil {
			return err
		}
		_, err = s.Sweep()
	}
	return err
}

// TestKilledAtAnyMoment kills a writing process again and again, each time later, and
// looks whether all it said to be durable is there.
func TestKilledAtAnyMoment(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	dir := t.TempDir()
	last := plan.Step(0)
	for round := range rounds {
		last = max(last, runAndKill(t, dir, 1+round*2, int64(round)*3_000_000))
		checkAfterCrash(t, dir, last)
	}
}

// writer is a process that writes forever, and what it told.
type writer struct {
	t         *testing.T
	cmd       *exec.Cmd
	complaint bytes.Buffer // its standard error
	lines     *bufio.Scanner
	last      plan.Step
}

func startWriter(t *testing.T, dir string) *writer {
	t.Helper()
	w := &writer{t: t, cmd: exec.Command(os.Args[0])}
	w.cmd.Env = append(os.Environ(), crashDir+"="+dir)
	w.cmd.Stderr = &w.complaint
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.lines = bufio.NewScanner(out)
	return w
}

// told waits for the next step that the process tells; false is its end.
func (w *writer) told() bool {
	w.t.Helper()
	if !w.lines.Scan() {
		return false
	}
	var step uint64
	if _, err := fmt.Sscan(w.lines.Text(), &step); err != nil {
		w.t.Fatal(err)
	}
	w.last = plan.Step(step)
	return true
}

// runAndKill kills the process after it has told of some steps, and then written about as
// many bytes more as this process can hash: a moment within a later step. It gives the
// last step told.
func runAndKill(t *testing.T, dir string, steps int, spin int64) plan.Step {
	t.Helper()
	w := startWriter(t, dir)
	for n := 0; n < steps && w.told(); n++ {
	}
	noise(1, int(spin))
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for w.told() { // before it was killed
	}
	_ = w.cmd.Wait() // killed
	if w.complaint.Len() > 0 || w.last == 0 {
		t.Fatalf("the process ended by itself: %s", w.complaint.String())
	}
	return w.last
}

func checkAfterCrash(t *testing.T, dir string, last plan.Step) {
	t.Helper()
	s := openStore(t, dir, Options{})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	left, err := os.ReadDir(dir + "/tmp")
	if err != nil || len(left) > 0 {
		t.Errorf("temporaries %v, %v", left, err)
	}
	r, err := s.Verify(t.Context(), nil)
	if err != nil || !r.OK() {
		t.Fatalf("after step %d: %+v, %v", last, r, err)
	}
	// One step more may be durable than was told. Retain leaves 8 and lets 4 more come.
	newest := r.Manifests[0].Step
	if newest != last && newest != last+1 {
		t.Fatalf("newest step %d, told %d", newest, last)
	}
	for step := newest; step > 0 && step+8 > newest; step-- {
		m, err := s.Manifest(step)
		if err != nil {
			t.Fatal(err)
		}
		var state bytes.Buffer
		if err := s.ReadLayer(t.Context(), m.Layers[0].Chunks, &state); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(state.Bytes(), crashState(step)) {
			t.Errorf("step %d has another state", step)
		}
	}
	for step := plan.Step(1); step <= last; step++ {
		text := fmt.Sprint(uint64(step))
		if v, _, err := s.Bucket("log").Get([]byte(text)); err != nil || string(v) != text {
			t.Errorf("bucket: step %d is %q, %v", step, v, err)
		}
	}
}
