package pipeline

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
)

// late is a device that puts off what it may.
type late struct {
	conform.Late
	distant bool // with all memory that may be wanted
}

func (d *late) Distant() bool     { return d.distant }
func (d *late) LimitMemory(int64) {}
func (d *late) MemoryLeft() int64 { return math.MaxInt64 }

// of is the same over another device.
func (d *late) of(inner kernels.Device) kernels.Device {
	return &late{conform.Late{Device: inner, Call: d.Call, Write: d.Write, Read: d.Read}, d.distant}
}

func lateBy(call, write, read time.Duration) *late {
	return &late{Late: conform.Late{Call: call, Write: write, Read: read}}
}

func distantBy(call, write, read time.Duration) *late {
	d := lateBy(call, write, read)
	d.distant = true
	return d
}

// TestCopiesThatComeLateChangeNoBit: passes wait for the copies that they read, and for those of
// what they write over, whichever are slow.
func TestCopiesThatComeLateChangeNoBit(t *testing.T) {
	t.Parallel()
	run := deep()
	run.Train.Steps = 2
	for i, text := range []string{"1f1b", "gpipe", "zb-h1", "interleaved:v=2", "seq1f1b"} {
		plan := scheduled(t, run, text, 4)
		want := train(t, run, plan, &memoryKeeper{})
		const short, long = 2 * time.Millisecond, 9 * time.Millisecond
		for k, d := range []*late{ // late are none, writes, reads, both or calls, the last two with a landing
			lateBy(0, 0, 0), lateBy(0, long, 0), lateBy(0, 0, long), lateBy(0, short, long), lateBy(long, 1, 1), distantBy(0, long, 0), distantBy(long, 1, 0),
		} {
			if !meets(i, k, 5) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				equal(t, fmt.Sprint(text, ", case ", k), trainAs(t, run, plan, &memoryKeeper{}, d.of), want)
			})
		}
	}
}

// TestCopiesRunBesideThePasses: in a trace, copies of the stage that has most to compute overlap
// with that, though it has a slot for one micro-batch alone; all but its first upload and its last
// download, of 8 each.
func TestCopiesRunBesideThePasses(t *testing.T) {
	const call, message = 10 * time.Millisecond, 6 * time.Millisecond
	run := testRun()
	run.Train.Steps, run.Train.Micros, run.Train.HeldOutEvery = 2, 8, 0
	plan := cut(run, "1f1b", []int{0, 2})
	plan.Replicas[0].Warmups = []int{4, 0}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "trace.json")
		file, err := trace.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		net := collective.NewMemory()
		var workers []*Worker
		for _, seat := range plan.Workers() {
			processor, err := cpu.New(cpu.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer processor.Close()
			w, err := New(usual(Config{
				Worker: seat, Run: run, Plan: plan, Device: distantBy(call, message, message).of(processor),
				Exchange: net.End(seat.Peer), Trace: file,
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			workers = append(workers, w)
		}
		runAll(t, workers)
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		hidden := hiddenCopies(t, path, 1)
		for _, way := range []string{"upload activation", "download gradient"} {
			if hidden[way] != 7*message {
				t.Errorf("%s: %v a step beside passes, want 7 x %v", way, hidden[way], message)
			}
		}
	})
}

// hiddenCopies is by what was copied how long a worker computed meanwhile, in the second step.
func hiddenCopies(t *testing.T, path string, worker int) map[string]time.Duration {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	read, err := trace.Read(in)
	if err != nil {
		t.Fatal(err)
	}
	hidden := map[string]time.Duration{}
	for _, c := range read.Copies {
		what, _, _ := strings.Cut(c.Name, ",")
		for _, s := range read.Spans {
			if c.Step == 2 && c.Worker == worker && s.Worker == worker && (s.Action.Op == schedule.Forward || s.Action.Op == schedule.Backward) {
				hidden[strings.TrimRight(what, " 0123456789")] += time.Duration(max(0, min(s.End, c.End)-max(s.Start, c.Start)))
			}
		}
	}
	return hidden
}
