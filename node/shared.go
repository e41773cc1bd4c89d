package node

import (
	"errors"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/gossip"
	"pnode/planner/plan"
)

// sharedState is what the run loop tells to status and heartbeats.
type sharedState struct {
	mu       sync.Mutex // guards what follows
	phase    Phase
	stalled  plan.Generation
	stallWhy error
	savedAt  time.Time
	why      string    // nothing moves; empty while things do
	whySince time.Time // of why
	whyTold  bool
}

// phaseChanged keeps the phase where others can read it.
func (n *Node) phaseChanged(from, to Phase) {
	n.shared.mu.Lock()
	n.shared.phase = to
	n.shared.mu.Unlock()
	n.log.Info("phase", "from", from, "to", to)
	n.hub.Publish(api.Event{Kind: api.KindState, Message: to.String()})
}

func (n *Node) setStalled(g plan.Generation, why error) {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	n.shared.stalled, n.shared.stallWhy = g, why
}

// isStalled tells whether this node gave up the current generation.
func (n *Node) isStalled() bool {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	return n.shared.stalled != 0
}

// tell takes in why nothing moves and says whether it is time to tell.
func (s *sharedState) tell(why string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != why {
		s.why, s.whySince, s.whyTold = why, now, false
	}
	if why == "" || s.whyTold || now.Sub(s.whySince) < tellAfter {
		return false
	}
	s.whyTold = true
	return true
}

// fillBeat puts the shared state into a heartbeat.
func (s *sharedState) fillBeat(b *gossip.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.Phase, b.Stalled = s.phase.String(), s.stalled
	if s.stallWhy != nil {
		b.Reason, b.Lacks = s.stallWhy.Error(), errors.Is(s.stallWhy, checkpointer.ErrNoChunks)
	}
}
