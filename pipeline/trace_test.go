package pipeline

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// TestATraceHoldsTheProgram trains under schedules with a trace for each worker and wants
// each worker's spans to be its program, one behind the other.
func TestATraceHoldsTheProgram(t *testing.T) {
	run := deep()
	run.Train.Steps = 2
	for _, text := range []string{"zb-h1", "interleaved:v=2", "chimera", "seq1f1b"} {
		plan := scheduled(t, run, text, 4)
		list, err := Programs(plan)
		if err != nil {
			t.Fatal(err)
		}
		net, dir := collective.NewMemory(), t.TempDir()
		var workers []*Worker
		var files []*trace.Recorder
		for _, seat := range plan.Workers() {
			device, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			file, err := trace.Create(filepath.Join(dir, string(seat.Peer)))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
			w, err := New(usual(Config{
				Worker: seat, Run: run, Plan: plan, Device: device, Exchange: net.End(seat.Peer), Trace: file,
				NameOf: machine,
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			workers = append(workers, w)
		}
		runAll(t, workers)
		var parts []trace.Trace
		for i, file := range files {
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			in, err := os.Open(filepath.Join(dir, string(plan.Workers()[i].Peer)))
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			part, err := trace.Read(in)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
		}
		whole := trace.Merge(parts...)
		if keys := whole.Keys(); len(keys) != 2 || len(whole.Names) != 4 || !strings.HasSuffix(whole.Names[0], "of machine "+string(whole.Peers[0])) {
			t.Fatalf("%s: steps %v of %v", text, keys, whole.Names)
		}
		for _, key := range whole.Keys() {
			checkLine(t, text, whole.Timeline(key), list)
			if got := whole.Segments(key); max(got, 1) != max(list.Segments, 1) {
				t.Errorf("%s: %d segments, want %d", text, got, list.Segments)
			}
		}
	}
}

// checkLine wants the program's actions in order, none before the other's end, and
// reductions beside them.
func checkLine(t *testing.T, name string, line schedule.Timeline, list schedule.Schedule) {
	t.Helper()
	for w, program := range list.Workers {
		var want, got []schedule.Action
		for _, a := range program {
			if a.Op != schedule.Reduce {
				want = append(want, a)
			}
		}
		end := schedule.Nanos(0)
		for _, s := range line.Workers[w] {
			if s.Action.Op == schedule.Reduce {
				continue
			}
			got = append(got, s.Action)
			if s.Start < end {
				t.Errorf("%s: worker %d begins %v before it ends the action before", name, w, s.Action)
			}
			end = s.End
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: worker %d did %v, its program is %v", name, w, got, want)
		}
		if line.Makespan < end || !slices.IsSortedFunc(line.Workers[w], func(a, b schedule.Span) int { return cmp.Compare(a.Start, b.Start) }) {
			t.Errorf("%s: worker %d ends at %d of %d", name, w, end, line.Makespan)
		}
	}
}

// machine names a peer for people.
func machine(peer plan.PeerID) string { return "machine " + string(peer) }
