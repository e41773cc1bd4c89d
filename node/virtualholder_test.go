package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAHolderOutOfReachHasASuccessor: the line between a stage's node and its holder is dead for the rest of the run, in one direction or in both, and
// nobody relays; or copies alone are refused at once. Nobody is gone and the plan stays, but within some steps another node has the copies. Then the stage's node is lost for good:
// from these the run goes on, and no step is done again.
func TestAHolderOutOfReachHasASuccessor(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds of processor time")
	}
	size := fleetSize{Steps: 28, Stages: 3, Replicas: 1, CheckpointEvery: 4, MinNodes: 6, Packets: true, Parts: true}
	if err := size.Relay.Set("off"); err != nil {
		t.Fatal(err)
	}
	const mostSteps, mostTime = 16, 20 * time.Second
	known := undisturbed(t, size)
	for name, cut := range map[string]func(owner, holder int) func(*faults){
		"for copies": nil,
		"in both directions": func(owner, holder int) func(*faults) {
			return func(w *faults) { oneDirection(owner, holder)(w); oneDirection(holder, owner)(w) }
		},
		"to the holder":   func(owner, holder int) func(*faults) { return oneDirection(owner, holder) },
		"from the holder": func(owner, holder int) func(*faults) { return oneDirection(holder, owner) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := choose(t, size, known, func(f *fleet, n *Node, s consensus.State) bool {
					at, owns := f.heldAside(n, s)
					return owns && s.Checkpoint.Step >= 8 && s.Checkpoint.Layers[s.Plan.At(at).Layers.First].StoredBy(s.Holder(at))
				})
				at, _ := l.heldAside(l.lost.node(), l.before)
				holder, layer := l.before.Holder(at), l.before.Plan.At(at).Layers.First
				began, from := time.Now(), l.truth.reached()
				if cut == nil {
					l.barred.Store(&[2]plan.PeerID{l.lost.self, holder})
				} else {
					l.faults.set(func() { cut(l.lost.number, l.numberOf(holder))(l.faults) })
				}
				var next plan.PeerID
				l.until("copies with another holder", 2*time.Minute, func() bool {
					now := l.state()
					next = now.Holder(at)
					return next != holder && now.Checkpoint.Layers[layer].StoredBy(next)
				})
				took, steps := time.Since(began), l.truth.reached()-from
				t.Logf("copies are with %s instead of %s after %v and %d steps", l.state().NameOf(next), l.state().NameOf(holder), took, steps)
				if steps > mostSteps || took > mostTime {
					t.Errorf("at most %d steps and %v", mostSteps, mostTime)
				}
				now := l.state()
				if now.Plan.Generation != l.before.Plan.Generation || now.Epoch != l.before.Epoch {
					t.Errorf("generation %d and epoch %d of members, were %d and %d", now.Plan.Generation, now.Epoch, l.before.Plan.Generation, l.before.Epoch)
				}
				if i := slices.IndexFunc(now.CopyFailures, func(c holders.Failure) bool { return c.Peer != l.lost.self || c.Holder != holder }); i >= 0 {
					t.Errorf("the log says, too, that copies fail: %+v", now.CopyFailures[i])
				}
				l.kill()
				l.until("a step after the loss", time.Minute, func() bool { return l.truth.reached() > l.newest })
				l.Logf("%v from the loss after step %d to the next step", time.Since(l.killed).Round(time.Millisecond), l.newest)
				if redone := l.ended(); redone != 0 {
					t.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}

// heldAside returns a stage of a node that neither leads nor coordinates, nor has founded the run, whose holder computes nothing and does not
// lead either: nothing but copies goes from the one to the other.
func (f *fleet) heldAside(n *Node, s consensus.State) (at plan.StageID, ok bool) {
	if s.Plan.Generation == 0 || n.self == f.members[0].self || !places["a follower"](n.self == s.Leader, n.self == s.Plan.Coordinator().Peer) {
		return at, false
	}
	for i, place := range s.Plan.Replicas[0].Stages {
		at = plan.StageID{Stage: plan.Stage(i)}
		if h := s.Holder(at); place.Peer == n.self && h != "" && h != s.Leader && !s.Plan.Places(h) {
			return at, true
		}
	}
	return at, false
}

// numberOf returns the number of a member.
func (f *fleet) numberOf(peer plan.PeerID) int {
	f.Helper()
	i := slices.IndexFunc(f.members, func(m *member) bool { return m.node() != nil && m.self == peer })
	if i < 0 {
		f.Fatalf("%s is no member", peer.Short())
	}
	return i
}
