package node

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/collective"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// twoTongues sends other replicas other outer gradients, or other losses, than it tells its own replica's coordinator of, from a step on. It seals both.
type twoTongues struct {
	collective.Exchange
	node *Node
	keys admission.Identity
	kind wire.Kind
	from plan.Step
	mu   sync.Mutex
	seal map[wire.Tag]wire.Seal // of messages that were changed, by the tag of the piece that has it
}

func (e *twoTongues) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if f.Tag.Kind != e.kind || f.Tag.Step < e.from {
		return e.Exchange.Send(ctx, to, f)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.seal[f.Tag]; ok {
		f.Payload = s[:]
		return e.Exchange.Send(ctx, to, f)
	}
	s := e.node.raft.State()
	m, seal := seals.Message{Replica: f.Tag.Replica, Layer: seals.Losses}, len(f.Payload)-wire.SealBytes
	f.Payload = bytes.Clone(f.Payload)
	if e.kind == wire.OuterGrad {
		layer, receiver, _ := collective.LayerOf(f.Tag)
		if plan.Replica(receiver) == f.Tag.Replica {
			return e.Exchange.Send(ctx, to, f) // of a tied embedding
		}
		m.Layer, seal = layer, len(f.Payload)
	}
	f.Payload[seal-4] ^= 1 // of the last number, in f32 or float64
	lie, err := seals.Of(*s.Run, s.Plan, s.Partings.Of(s.Plan.Generation), f.Tag.Step).Seal(e.keys, m, f.Payload[:seal])
	if err != nil {
		return err
	}
	if copy(f.Payload[seal:], lie.Seal[:]) == 0 {
		behind := f.Tag
		behind.Index += 1 << 21
		e.seal[behind] = lie.Seal
	}
	return e.Exchange.Send(ctx, to, f)
}

// TestOneStageOfAReplicaLies: of two replicas of two nodes each one node seals other messages for the other replica than it tells its own one of. It is found out by
// its two seals, whichever of the two it is, and left out of plans. The honest node of its replica is not.
func TestOneStageOfAReplicaLies(t *testing.T) {
	for name, c := range map[string]struct {
		stage int
		kind  wire.Kind
	}{"in what its layers have learned": {0, wire.OuterGrad}, "as the coordinator, in losses": {1, wire.KindOuterReport}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLocalRun(t, 4, func(s *fleetSize) {
					s.Stages, s.Replicas, s.Sync.Codec = 2, 2, "f32"
					s.Lies = func(n *Node, id plan.WorkerID, e collective.Exchange) collective.Exchange {
						s := n.raft.State()
						if s.Plan.Generation != 1 || liarOf(s, c.stage) != id {
							return e
						}
						keys, err := admission.LoadIdentity(n.dir)
						if err != nil {
							panic(err)
						}
						return &twoTongues{Exchange: e, node: n, keys: keys, kind: c.kind, from: 4, seal: map[wire.Tag]wire.Seal{}}
					}
				})
				liar := liarOf(r.members[0].node().raft.State(), c.stage).Peer
				r.until("the next plan", time.Hour, func() bool { return r.members[0].node().raft.State().Plan.Generation == 2 })
				s := r.members[0].node().raft.State()
				i := slices.IndexFunc(s.Blames, func(b consensus.Blame) bool { return b.Kind == plan.BadSum })
				if i < 0 || len(s.Blames) != 1 || s.Blames[i].Peer != liar || s.Blames[i].Until == 0 || !strings.Contains(s.Blames[i].Detail, "two different messages") {
					t.Errorf("%s lies: %+v", s.NameOf(liar), s.Blames)
				}
				for _, m := range s.Members {
					if (m.Blamed != nil || m.Faults > 0) != (m.Peer == liar) {
						t.Errorf("%s lies, %s is blamed: %+v", s.NameOf(liar), s.NameOf(m.Peer), m.Blamed)
					}
				}
				if s.Plan.Places(liar) || len(s.Plan.Peers()) != 2 {
					t.Errorf("%s lies, the next plan is of %v", s.NameOf(liar), s.Plan.Peers())
				}
				if s.Plan.Start < 8 {
					t.Errorf("the next plan begins at step %d: what one replica had learned is lost", s.Plan.Start)
				}
				t.Log(strings.Join(s.Reasons, "\n"))
				r.untilEnded(time.Hour)
			})
		})
	}
}

// liarOf returns a worker of a stage of a plan that is not the run's founder's.
func liarOf(s consensus.State, stage int) plan.WorkerID {
	for _, pipe := range s.Plan.Replicas {
		if at := pipe.Stages[stage]; !slices.Contains(s.Owners, at.Peer) {
			return at.Worker()
		}
	}
	return plan.WorkerID{}
}
