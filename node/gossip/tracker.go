package gossip

import (
	"sync"
	"time"

	"pnode/planner"
	"pnode/planner/plan"
)

// Tracker remembers the newest heartbeat of every peer and when it came. Its methods may be
// called concurrently.
type Tracker struct {
	news  chan struct{}
	mu    sync.Mutex // guards heard
	heard map[plan.PeerID]heard
}

type heard struct {
	beat Heartbeat
	at   time.Time
	// stalledSince is when the peer first reported the generation it gives up now.
	stalledSince time.Time
}

// NewTracker returns a tracker that has heard nobody.
func NewTracker() *Tracker {
	return &Tracker{news: make(chan struct{}, 1), heard: map[plan.PeerID]heard{}}
}

// News receives a value after heartbeats were noted. It has one reader.
func (t *Tracker) News() <-chan struct{} { return t.news }

// Note takes in a heartbeat that came at a time.
func (t *Tracker) Note(b Heartbeat, now time.Time) {
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
	select {
	case t.news <- struct{}{}:
	default: // the reader will look anyway
	}
}

// Touch notes that a peer lives, though no heartbeat says so.
func (t *Tracker) Touch(peer plan.PeerID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.heard[peer]
	h.at = now
	t.heard[peer] = h
}

// Silent returns for how long a peer has not been heard, counted from since at the earliest:
// whoever starts to listen cannot blame others for what it missed.
func (t *Tracker) Silent(peer plan.PeerID, since, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.heard[peer].at
	if at.Before(since) {
		at = since
	}
	return now.Sub(at)
}

// Ago returns the time since a peer was heard, if it ever was.
func (t *Tracker) Ago(peer plan.PeerID, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.heard[peer]
	return now.Sub(h.at), ok
}

// Last returns the newest heartbeat of a peer, if there is one.
func (t *Tracker) Last(peer plan.PeerID) (Heartbeat, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.heard[peer]
	return h.beat, ok
}

// Stall describes a generation that members have given up. The zero value is none.
type Stall struct {
	// For is the time since the first report, Why the reason that came with it.
	For time.Duration
	Why string
	// Lacks reports that a member could not get chunks of the generation's checkpoint.
	Lacks bool
}

// Stalled returns what the peers report of generation g having been given up.
func (t *Tracker) Stalled(peers []plan.PeerID, g plan.Generation, now time.Time) Stall {
	t.mu.Lock()
	defer t.mu.Unlock()
	var s Stall
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

// Finished returns the step at which a peer says that the run was finished; 0 when none does.
func (t *Tracker) Finished() plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	var step plan.Step
	for _, h := range t.heard {
		step = max(step, h.beat.Finished)
	}
	return step
}

// Newest returns the newest step of generation g that one of the peers reports.
func (t *Tracker) Newest(peers []plan.PeerID, g plan.Generation) plan.Step {
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

// Wish returns the schedule that a leader's newest heartbeat asks for; zero without one.
func (t *Tracker) Wish(leader plan.PeerID) ScheduleWish {
	if b, ok := t.Last(leader); ok && b.Wish != nil {
		return *b.Wish
	}
	return ScheduleWish{}
}

// Running returns a plan with the schedule of its coordinator's newest step, and that step.
func (t *Tracker) Running(p plan.Plan) (plan.Plan, plan.Step) {
	b, _ := t.Last(p.Coordinator().Peer)
	if b.Generation != p.Generation {
		return p, 0
	}
	if c, err := plan.ParseScheduleChoice(b.Schedule); err == nil {
		if on, err := p.WithSchedule(c); err == nil {
			return on, b.Step
		}
	}
	return p, b.Step
}

// Seen returns the stage times and link rates of a plan's newest step. It is not ok while those
// of a stage are missing.
func (t *Tracker) Seen(plan plan.Plan) (out planner.Measured, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, peer := range plan.Peers() {
		b := t.heard[peer].beat
		if b.Generation != plan.Generation {
			return out, false
		}
		for _, s := range b.Stages {
			out.Stages = append(out.Stages, planner.MeasuredStage{
				Replica: s.Replica, Stage: s.Stage, ForwardNanos: s.ForwardNanos, BackwardNanos: s.BackwardNanos, UpdateNanos: s.UpdateNanos,
			})
		}
		for _, l := range b.Links {
			if plan.Places(l.Peer) {
				out.Links = append(out.Links, planner.MeasuredLink{From: peer, To: l.Peer, BytesPerS: l.BytesPerS, RTTNanos: l.RTTNanos, JitterNanos: l.JitterNanos})
			}
		}
		out.StepNanos = max(out.StepNanos, b.StepNanos)
	}
	stages := 0
	for _, pipe := range plan.Replicas {
		stages += len(pipe.Stages)
	}
	return out, len(out.Stages) == stages && out.StepNanos > 0
}
