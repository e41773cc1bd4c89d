package node

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// TestTheModelWritesWhileItTrains: a node that was asked to has the model write from checkpoints that it brings whole for that, whoever
// computes the layers. Losses and weights are those of a run in which nobody reads along.
func TestTheModelWritesWhileItTrains(t *testing.T) {
	size := fleetSize{Steps: 20, Stages: 2, Replicas: 1, CheckpointEvery: 4, MinNodes: 2}
	known := undisturbed(t, size)
	size.SampleEvery = 8
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		var mu sync.Mutex // guards wrote
		wrote := map[int][]plan.Step{}
		f.tales = func(m *member, e api.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == api.KindSample {
				wrote[m.number] = append(wrote[m.number], e.Step)
				if !strings.HasPrefix(e.Message, samplePrompt) || len(e.Message) == len(samplePrompt) || e.Steps != plan.Step(size.Steps) {
					t.Errorf("the model of step %d of %d wrote %q", e.Step, e.Steps, e.Message)
				}
			}
		}
		founder := f.add()
		f.add().join(founder.found())
		for i, err := range f.untilEnded(time.Hour) {
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if got := wrote[1]; len(wrote[0]) > 0 || len(got) < 2 || !slices.IsSorted(got) || got[0] < 8 {
			t.Errorf("the model wrote at %v, want twice at least on node 1 alone", wrote)
		}
		f.check()
	})
}
