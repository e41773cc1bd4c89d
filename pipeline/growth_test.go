package pipeline

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestNoGrowth trains 1,000 steps in two stages and compares the memory after the first
// 200 with that after the last: nothing may stay behind a step. Saves and evaluations
// happen along the way.
func TestNoGrowth(t *testing.T) {
	if testing.Short() {
		t.Skip("1,000 steps")
	}
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery = 1000, 100, 50
	run.Model.Blocks = 1
	var early, late footprint
	trainWith(t, run, cut(run, "1f1b", []int{0, 2}), forgetful{}, func(r StepResult) {
		if len(r.Stages) > 0 && r.Stages[0].Stage == 1 && r.Step == 200 {
			early = measure(t)
		}
		if len(r.Stages) > 0 && r.Stages[0].Stage == 1 && r.Step == run.Train.Steps && !r.Final {
			late = measure(t)
		}
	})
	const slackBytes = 4 << 20 // what the garbage collector and the test's own maps take
	if grown := late.heapBytes - early.heapBytes; early.heapBytes == 0 || grown > slackBytes {
		t.Errorf("the heap has %d bytes after 200 steps and %d after 1,000", early.heapBytes, late.heapBytes)
	}
	if grown := late.residentBytes - early.residentBytes; grown > 4*slackBytes {
		t.Errorf("%d bytes are resident after 200 steps and %d after 1,000", early.residentBytes, late.residentBytes)
	}
}

// forgetful takes states and forgets them.
type forgetful struct{}

func (forgetful) Save(_ context.Context, s State) error {
	for _, l := range s.Layers {
		if _, err := io.Copy(io.Discard, l); err != nil {
			return err
		}
	}
	return nil
}

func (forgetful) Load(context.Context, int, Part, io.Writer) error {
	return errors.New("the test starts from the initial model")
}

// footprint is the process's memory; residentBytes is 0 where the system does not tell.
type footprint struct{ heapBytes, residentBytes int64 }

func measure(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f := footprint{heapBytes: int64(m.HeapAlloc)}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return f
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	f.residentBytes = pages * int64(os.Getpagesize())
	return f
}
