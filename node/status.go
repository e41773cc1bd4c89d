package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/node/api"
	"pnode/pipeline"
	"pnode/planner"
	"pnode/swarm"
	"pnode/swarm/consensus"
)

// The methods of this file are what the local API serves (api.Node), and what the run
// loop and the planner put there.

// phaseChanged keeps the phase where others can read it.
func (n *Node) phaseChanged(from, to Phase) {
	n.shared.mu.Lock()
	n.shared.phase = to
	n.shared.mu.Unlock()
	n.log.Info("phase", "from", from, "to", to)
	n.hub.Publish(api.Event{Kind: api.KindState, Message: to.String()})
}

func (n *Node) setStalled(g planner.Generation, why error) {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	n.shared.stalled, n.shared.stallWhy = g, ""
	if why != nil {
		n.shared.stallWhy = why.Error()
	}
}

// isStalled tells whether this node gave up the current generation.
func (n *Node) isStalled() bool {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	return n.shared.stalled != 0
}

// setBlocked notes why the planner cannot plan; empty is that it can.
func (n *Node) setBlocked(why string) {
	n.shared.mu.Lock()
	changed := n.shared.blocked != why
	n.shared.blocked = why
	n.shared.mu.Unlock()
	if changed && why != "" {
		n.hub.Publish(api.Event{Kind: api.KindError, Message: "no plan yet: " + why})
	}
}

// Status is a snapshot for `pnode status`.
func (n *Node) Status() api.Status {
	state := n.raft.State()
	leader, term, _ := n.raft.Leader()
	n.shared.mu.Lock()
	phase, blocked, savedAt := n.shared.phase, n.shared.blocked, n.shared.savedAt
	n.shared.mu.Unlock()
	s := api.Status{
		Run: n.seat.Run, Peer: n.self, State: phase.String(), Generation: state.Plan.Generation,
		Term: term, Leader: leader, Addrs: n.addrs(), Reasons: state.Reasons,
		Checkpoint: api.Checkpoint{Step: state.Checkpoint.Step, Time: savedAt},
		Roster:     n.roster(state, leader), Plan: n.stages(state),
	}
	if blocked != "" {
		s.Reasons = append([]string{"no plan yet: " + blocked}, s.Reasons...)
	}
	if state.Run != nil {
		s.Steps = state.Run.Train.Steps
		s.Data = dataStatus(state.Run.Data)
	}
	n.fillProgress(&s, state)
	return s
}

func dataStatus(d planner.DataSpec) api.Data {
	return api.Data{SizeBytes: d.SizeBytes, HeldOutBytes: d.SizeBytes * int64(d.HeldOutPermille) / 1000}
}

// fillProgress uses this node's own steps, or the newest that a heartbeat told of.
func (n *Node) fillProgress(s *api.Status, state consensus.State) {
	n.progress.fill(s)
	for _, m := range state.Members {
		b, ok := n.beats.last(m.Peer)
		if ok && b.Generation == s.Generation && b.Step > s.Step {
			loss := b.Loss
			s.Step, s.Loss, s.TokensPerS = b.Step, &loss, b.TokensPerS
		}
	}
	if state.Run != nil && s.TokensPerS > 0 && s.Steps >= s.Step {
		t := state.Run.Train
		tokens := float64(s.Steps-s.Step) * float64(t.Micros*t.MicroBatch*state.Run.Model.Context)
		s.ETAS = tokens / s.TokensPerS
	}
}

func (n *Node) roster(state consensus.State, leader planner.PeerID) []api.Member {
	var roster []api.Member
	for _, m := range state.Members {
		member := api.Member{Peer: m.Peer, State: string(m.State), Addrs: m.Addrs, Self: m.Peer == n.self, Leader: m.Peer == leader}
		if ago, heard := n.beats.ago(m.Peer, time.Now()); heard && !member.Self {
			member.LastSeenS = ago.Seconds()
		}
		if len(m.Profile.Devices) > 0 {
			d := m.Profile.Devices[0]
			member.Device = fmt.Sprintf("%s (%s, %d GFLOP/s)", d.Name, d.Model, d.MatMulFLOPS/1e9)
		}
		roster = append(roster, member)
	}
	return roster
}

// stages lists the plan's placements with the times their nodes gossiped.
func (n *Node) stages(state consensus.State) []api.StageStatus {
	var stages []api.StageStatus
	for r, pipe := range state.Plan.Replicas {
		for i, place := range pipe.Stages {
			s := api.StageStatus{Replica: planner.Replica(r), Stage: planner.Stage(i), Peer: place.Peer, Device: place.Device, Layers: place.Layers}
			b, _ := n.beats.last(place.Peer)
			for _, t := range b.Stages {
				if b.Generation == state.Plan.Generation && t.Replica == s.Replica && t.Stage == s.Stage {
					s.ForwardMS, s.BackwardMS = milliseconds(t.ForwardNanos), milliseconds(t.BackwardNanos)
					s.WaitMS, s.UpdateMS = milliseconds(t.WaitNanos), milliseconds(t.UpdateNanos)
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

// Invite makes an invite to the run; only the creator's node can.
func (n *Node) Invite(ttl time.Duration, uses int) (string, error) {
	if len(n.swarm.Addrs()) == 0 {
		return "", fmt.Errorf("node: no address yet: %w", api.ErrNotReady)
	}
	invite, err := n.swarm.Invite(swarm.InviteOptions{TTL: ttl, Uses: uses})
	if err != nil {
		return "", err
	}
	return invite.String(), nil
}

// Leave begins this node's way out of the run.
func (n *Node) Leave(context.Context) error {
	n.requestLeave()
	return nil
}

// Stop asks all nodes to save and stop.
func (n *Node) Stop(ctx context.Context) error { return n.raft.Propose(ctx, consensus.WantStop{}) }

// heartbeats gossips a heartbeat every second until ctx ends.
func (n *Node) heartbeats(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		n.beat()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// beat gossips this node's heartbeat and notes it here.
func (n *Node) beat() {
	n.shared.mu.Lock()
	b := Beat{Peer: n.self, Phase: n.shared.phase.String(), Stalled: n.shared.stalled, Reason: n.shared.stallWhy}
	n.shared.mu.Unlock()
	n.progress.fillBeat(&b)
	n.beats.note(b, time.Now())
	if err := n.swarm.Publish(n.base, swarm.TopicEvents, b.encode()); err != nil {
		n.log.Debug("heartbeat", "cause", err)
	}
}

// subscribe begins to listen to gossip and to answer members' requests.
func (n *Node) subscribe() error {
	valid := func(from planner.PeerID, data []byte) error {
		b, err := decodeBeat(data)
		if err == nil && b.Peer != from {
			err = fmt.Errorf("%w: it speaks for %.80q", errBadBeat, b.Peer)
		}
		return err
	}
	handle := func(_ planner.PeerID, data []byte) {
		if b, err := decodeBeat(data); err == nil {
			n.beats.note(b, time.Now())
		}
	}
	if err := n.swarm.Subscribe(swarm.TopicEvents, valid, handle); err != nil {
		return err
	}
	if err := n.listenToProfiles(); err != nil {
		return err
	}
	n.swarm.Handle(protocolCopy, func(ctx context.Context, from planner.PeerID, s swarm.Stream) {
		_ = s.SetReadDeadline(time.Now().Add(requestTimeout)) // a stream that cannot ends at once
		err := answer(s, func(request []byte) ([]byte, error) {
			return nil, n.keeper.keepCopy(ctx, from, request)
		})
		if err != nil {
			n.log.Debug("copy request", "from", from, "cause", err)
		}
	})
	return nil
}

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

// summarize describes a plan in one line, with the reason it was made for.
func summarize(p planner.Plan, reasons []string) string {
	text := fmt.Sprintf("generation %d from step %d: %d replicas, stages", p.Generation, p.Start, len(p.Replicas))
	for _, pipe := range p.Replicas {
		text += fmt.Sprintf(" %d", len(pipe.Stages))
	}
	if len(reasons) > 0 {
		text += " (" + reasons[0] + ")"
	}
	return text
}

// announceInvite shows an invite where others can reach this node.
func (n *Node) announceInvite() error {
	if n.seat.Listen == "" {
		return nil
	}
	invite, err := n.Invite(0, inviteUses)
	if errors.Is(err, swarm.ErrNoOwnerKey) {
		return nil // a member that came by an invite
	}
	if err != nil {
		return err
	}
	n.out.Notice("join from another machine or terminal with:\n  pnode join " + invite)
	return nil
}

// inviteUses is how many nodes may come in by the invite that train prints.
const inviteUses = 64

// times turns a worker's times into a heartbeat's.
func times(k stageKey, t pipeline.StageTimes) BeatStage {
	return BeatStage{
		Replica: k.replica, Stage: k.stage,
		ForwardNanos: t.Forward.Nanoseconds(), BackwardNanos: t.Backward.Nanoseconds(),
		WaitNanos: t.Wait.Nanoseconds(), UpdateNanos: t.Update.Nanoseconds(),
	}
}
