package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// The methods of this file are what the local API serves (api.Node).

// Status is a snapshot for `pnode status`.
func (n *Node) Status() api.Status {
	state := n.raft.State()
	leader, term, _ := n.raft.Leader()
	n.shared.mu.Lock()
	phase, savedAt := n.shared.phase, n.shared.savedAt
	n.shared.mu.Unlock()
	s := api.Status{
		Run: n.seat.Run, Peer: n.self, State: phase.String(), Generation: state.Plan.Generation,
		Term: term, Leader: leader, Addrs: n.announcer.Addrs(), Reasons: n.reasons(state, leader),
		Checkpoint: api.Checkpoint{Step: state.Checkpoint.Step, Time: savedAt},
		Roster:     n.roster(state, leader), Plan: n.stages(state), Waiting: n.waiting(time.Now()),
	}
	if state.Run != nil {
		s.Steps = state.Run.Train.Steps
		s.Data = dataStatus(state.Run.Data)
	}
	n.fillProgress(&s, state)
	n.fillPlan(&s, state)
	return s
}

func dataStatus(d plan.DataSpec) api.Data {
	return api.Data{SizeBytes: d.SizeBytes, HeldOutBytes: d.SizeBytes * int64(d.HeldOutPermille) / 1000}
}

// longestETA, in seconds, is told at most: a heartbeat may tell of any rate above nothing.
const longestETA = 1e10

// fillProgress uses this node's own steps, or the newest that a heartbeat told of.
func (n *Node) fillProgress(s *api.Status, state consensus.State) {
	n.progress.fill(s)
	for _, m := range state.Members {
		b, ok := n.beats.Last(m.Peer)
		if ok && b.Generation == s.Generation && b.Step > s.Step {
			s.Step, s.TokensPerS = b.Step, b.TokensPerS
			if loss := b.Loss; loss != 0 {
				s.Loss = &loss
			}
		}
	}
	if state.Run != nil && s.TokensPerS > 0 && s.Steps >= s.Step {
		t := state.Run.Train
		tokens := float64(s.Steps-s.Step) * float64(t.Micros*t.MicroBatch*state.Run.Model.Context)
		s.ETAS = min(tokens/s.TokensPerS, longestETA)
	}
}

func (n *Node) roster(state consensus.State, leader plan.PeerID) []api.Member {
	var roster []api.Member
	for _, m := range state.Members {
		member := api.Member{Peer: m.Peer, State: string(m.State), Addrs: m.Addrs, Self: m.Peer == n.self, Leader: m.Peer == leader}
		if ago, heard := n.beats.Ago(m.Peer, time.Now()); heard && !member.Self {
			member.LastSeenS = ago.Seconds()
		}
		member.Device = describeDevices(m.Profile)
		roster = append(roster, member)
	}
	return roster
}

// describeDevices names what a member computes on.
func describeDevices(p plan.Profile) string {
	var all []string
	for _, d := range p.Devices {
		all = append(all, fmt.Sprintf("%s (%s, %d GFLOP/s)", d.Name, d.Model, d.MatMulFLOPS/1e9))
	}
	return strings.Join(all, ", ")
}

// stages lists the plan's placements with the times their nodes gossiped.
func (n *Node) stages(state consensus.State) []api.StageStatus {
	var stages []api.StageStatus
	for r, pipe := range state.Plan.Replicas {
		for i, place := range pipe.Stages {
			s := api.StageStatus{Replica: plan.Replica(r), Stage: plan.Stage(i), Peer: place.Peer, Device: place.Device, Layers: place.Layers, Codec: place.Codec}
			b, _ := n.beats.Last(place.Peer)
			for _, t := range b.Stages {
				if b.Generation == state.Plan.Generation && t.Replica == s.Replica && t.Stage == s.Stage {
					s.ForwardMS, s.BackwardMS = milliseconds(t.ForwardNanos), milliseconds(t.BackwardNanos)
					s.WaitMS, s.UpdateMS = milliseconds(t.WaitNanos), milliseconds(t.UpdateNanos)
					s.FellBack, s.RelError = t.FellBack, t.RelError
				}
			}
			stages = append(stages, s)
		}
	}
	return stages
}

func milliseconds(nanos int64) float64 { return float64(nanos) / 1e6 }

// Events subscribes to what happens on this node.
func (n *Node) Events(ctx context.Context) <-chan api.Event { return n.hub.Events(ctx) }

// History is what is remembered of all that happened on this node.
func (n *Node) History() api.History { return n.hub.History() }

// Leave begins this node's way out of the run.
func (n *Node) Leave(context.Context) error {
	n.requestLeave()
	return nil
}

// Stop asks all nodes to save and stop.
func (n *Node) Stop(ctx context.Context) error { return n.raft.Propose(ctx, consensus.WantStop{}) }

// Checkpoints lists the checkpoints that this node keeps.
func (n *Node) Checkpoints() (api.CheckpointList, error) { return checkpointer.List(n.store) }

// showEvents hands the hub's events to whoever started this node, until the hub closes.
// Cut off for being slow, it begins again where it was.
func (n *Node) showEvents() {
	last := uint64(0)
	for more := true; more; {
		more = false
		for e := range n.hub.Events(context.Background()) {
			if e.Seq > last {
				n.out.Events(e)
				last, more = e.Seq, true
			}
		}
	}
}
