package node

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// momentary names a moment in the life of an optimistic step by what a node logs or tells then, perhaps after it said something else.
type momentary struct{ after, says string }

const (
	saysApplied    = "applied a step before its commit"
	saysRolledBack = "rolled a step back that was applied before its commit"
)

var momentaries = map[string]momentary{
	"before the commit":              {says: saysApplied},
	"at the rollback":                {says: saysRolledBack},        // the update is not made anew yet
	"once it is made anew":           {saysRolledBack, "step"},      // and the next step's forwards are to be
	"before the commit after it all": {saysRolledBack, saysApplied}, // with all activations under their usual numbers again
}

// strike has nothing leave a member any more from a moment on that comes 10 steps after the begin of the run or later, and chooses it to be lost.
func strike(t *testing.T, size fleetSize, known *truth, moment momentary, is func(leads, coordinates bool) bool) *losing {
	t.Helper()
	l := &losing{fleet: newFleet(t, size, known.again())}
	struck, goOn := make(chan struct{}), make(chan struct{})
	defer close(goOn)
	var mu sync.Mutex // guards said, l.lost and l.before until struck is closed
	said := map[*member]bool{}
	l.says = func(m *member, message string) {
		mu.Lock()
		n := m.process.node.Load()
		if l.lost == nil && n != nil && l.truth.reached() >= 10 && message == moment.says && (moment.after == "" || said[m]) {
			if state := n.raft.State(); at(is, n, state) && state.Checkpoint.Step >= 8 {
				l.faults.setDown(m.addr(), true)
				l.lost, l.before = m, state
				close(struck)
				mu.Unlock()
				<-goOn
				return
			}
		}
		said[m] = said[m] || message == moment.after
		mu.Unlock()
	}
	invite := l.add().found()
	for range size.MinNodes - 1 {
		l.add().join(invite)
	}
	l.until("the moment", time.Hour, func() bool {
		select {
		case <-struck:
			return true
		default:
			return l.over()
		}
	})
	select {
	case <-struck:
	default:
		t.Fatal("the moment did not come")
	}
	return l
}

// TestALossAroundAnOptimisticStep: a node is lost when it has applied a step whose commit it lacks; between a rollback and the update that is made
// anew; when that is made; and in the optimistic step after that. Another one goes on in its place from the newest checkpoint, with the losses and
// weights of one node alone, which waits for nobody.
func TestALossAroundAnOptimisticStep(t *testing.T) {
	size := fleetSize{Steps: 32, Stages: 3, Replicas: 1, CheckpointEvery: 8, MinNodes: 3, PostValidation: true, Jumps: true, ClipNorm: 2.2}
	known := undisturbed(t, size)
	for name, moment := range momentaries {
		for place, is := range places {
			if testing.Short() && place != "the coordinator" {
				continue
			}
			t.Run(name+", "+place, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := strike(t, size, known, moment, is)
					if !l.before.Plan.PostValidation {
						t.Error("the plan has nodes wait for commits")
					}
					for _, m := range l.others(l.lost) {
						if v := m.node().monitor.Status().PostValidation; v == nil || moment.after+moment.says != saysApplied && v.Optimistic == 0 {
							t.Errorf("%s tells of %+v", m.name(), v)
						}
					}
					l.kill()
					if found := l.substitute().Substitute; !found.Replays || found.From != l.before.Checkpoint.Step {
						t.Errorf("%+v goes on, want one after step %d", *found, l.before.Checkpoint.Step)
					}
					l.goOn()
					if redone := l.finish(); redone != 0 {
						t.Errorf("%d steps were computed again", redone)
					}
				})
			})
		}
	}
}
