package node

import (
	"sync"
	"time"

	"pnode/planner/plan"
)

// tracker remembers the newest heartbeat of every peer and when it came.
type tracker struct {
	mu    sync.Mutex // guards heard
	heard map[plan.PeerID]heard
}

type heard struct {
	beat Beat
	at   time.Time
	// stalledSince is when the peer first reported the generation it gives up now.
	stalledSince time.Time
}

func newTracker() *tracker { return &tracker{heard: map[plan.PeerID]heard{}} }

// note takes in a heartbeat.
func (t *tracker) note(b Beat, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := heard{beat: b, at: now}
	if b.Stalled != 0 {
		h.stalledSince = now
		if old := t.heard[b.Peer]; old.beat.Stalled == b.Stalled {
			h.stalledSince = old.stalledSince
		}
	}
	t.heard[b.Peer] = h
}

// touch notes that a peer lives, though no heartbeat says so.
func (t *tracker) touch(peer plan.PeerID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.heard[peer]
	h.at = now
	t.heard[peer] = h
}

// silent is how long a peer has not been heard, counted from since at the earliest:
// whoever starts to listen cannot blame others for what it missed.
func (t *tracker) silent(peer plan.PeerID, since, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.heard[peer].at
	if at.Before(since) {
		at = since
	}
	return now.Sub(at)
}

// ago is how long it is that a peer was heard, if ever it was.
func (t *tracker) ago(peer plan.PeerID, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.heard[peer]
	return now.Sub(h.at), ok
}

// last is the newest heartbeat of a peer.
func (t *tracker) last(peer plan.PeerID) (Beat, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.heard[peer]
	return h.beat, ok
}

// stalled is what the peers tell of generation g being given up: For how long at most, why,
// and whether one of them lacked chunks.
func (t *tracker) stalled(peers []plan.PeerID, g plan.Generation, now time.Time) stall {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s stall
	for _, p := range peers {
		h, ok := t.heard[p]
		if !ok || g == 0 || h.beat.Stalled != g {
			continue
		}
		if d := max(1, now.Sub(h.stalledSince)); d >= s.For {
			s.For, s.Why = d, h.beat.Reason
		}
		s.Lacks = s.Lacks || h.beat.Lacks
	}
	return s
}

// finished is the step that a peer says the run was finished at, 0 when none does.
func (t *tracker) finished() plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	var step plan.Step
	for _, h := range t.heard {
		step = max(step, h.beat.Finished)
	}
	return step
}

// newest is the newest step of generation g that one of the peers tells of.
func (t *tracker) newest(peers []plan.PeerID, g plan.Generation) plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest plan.Step
	for _, p := range peers {
		if b := t.heard[p].beat; b.Generation == g {
			newest = max(newest, b.Step)
		}
	}
	return newest
}
