package node

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/checkpointer"
	"pnode/swarm/consensus"
)

// slowDisk tells the log of what was in memory a while after the checkpoint was made, as where a disk is slow.
type slowDisk struct {
	checkpointer.Consensus
	takes time.Duration
}

func (s slowDisk) Propose(ctx context.Context, e consensus.Entry) error {
	saved, ok := e.(consensus.StageSaved)
	made := s.State().Checkpoint
	if s.takes > 0 && ok && saved.Unstored == 0 && saved.Step == made.Step && slices.ContainsFunc(made.Layers, inMemory) {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Consensus.Propose(ctx, e)
}

// inMemory reports whether a holder of a layer has it in memory alone.
func inMemory(l consensus.LayerRef) bool { return l.Unstored != nil }

// TestAStopWaitsUntilAllIsStored: the run is stopped when what is left of a generation is in their memories alone. They end with it stored, and
// the next start goes on from there: no step is done again.
func TestAStopWaitsUntilAllIsStored(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 3, Parts: true, SlowDisk: 4 * time.Second}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		invite := f.add().found()
		for range 3 {
			f.add().join(invite)
		}
		f.untilStep(13)
		var lost *member
		for _, m := range f.members[1:] {
			if f.state().Plan.Places(m.self) {
				lost = m
			}
		}
		lost.kill()
		f.until("state in memory", time.Hour, func() bool {
			return slices.ContainsFunc(append(slices.Clone(f.state().Pending), f.checkpoint()), func(c consensus.Checkpoint) bool { return slices.ContainsFunc(c.Layers, inMemory) })
		})
		if err := f.members[0].node().Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, err := range f.untilEnded(time.Minute) {
			if err != nil && f.members[i] != lost {
				f.Errorf("node %d stops with %v", i, err)
			}
		}
		made := f.members[0].process.node.Load().raft.State().Checkpoint
		f.Logf("stopped with the checkpoint of step %d of generation %d", made.Step, made.Generation)
		if made.Step < 13 || slices.ContainsFunc(made.Layers, func(l consensus.LayerRef) bool { return !slices.ContainsFunc(l.Holders, l.StoredBy) }) {
			f.Errorf("the checkpoint of step %d after the stop: %+v", made.Step, made.Layers)
		}
		if redone := f.completes(f.members...); redone > 0 {
			f.Errorf("%d steps were computed again", redone)
		}
	})
}

// TestAStopJustAfterTwoDeathsWaitsForTheReplay: two nodes die, and the others are interrupted before the steps of the dead are computed again.
// The stop waits for that: the next start goes on from the newest step.
func TestAStopJustAfterTwoDeathsWaitsForTheReplay(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 5, Replicas: 1, CheckpointEvery: 10, MinNodes: 5}
	known := undisturbed(t, size)
	apiStop := func(f *fleet) {
		if err := f.members[0].node().Stop(f.Context()); err != nil {
			f.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		after time.Duration
		stop  func(*fleet)
	}{
		"before anybody knows":         {0, interruptAll},
		"before anything is asked for": {100 * time.Millisecond, interruptAll},
		"by the API":                   {100 * time.Millisecond, apiStop},
		"during the replay":            {time.Second, apiStop},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, size, known.again())
				invite := f.add().found()
				for range 4 {
					f.add().join(invite)
				}
				f.untilStep(13)
				dead, living := f.members[3:], f.members[:3]
				for _, m := range dead {
					m.kill(living...)
				}
				time.Sleep(c.after)
				reached, stopped := f.truth.reached(), time.Now()
				c.stop(f)
				for i, err := range f.untilEnded(leaveTimeout)[:3] {
					if err != nil {
						f.Errorf("node %d stops with %v", i, err)
					}
				}
				made := f.members[0].process.node.Load().raft.State().Checkpoint
				f.Logf("stopped %v after step %d with the checkpoint of step %d", time.Since(stopped).Round(time.Millisecond), reached, made.Step)
				if made.Step < reached {
					f.Error("the stop gave steps up that the living had")
				}
				if redone := f.completes(f.members...); redone > 0 {
					f.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}
