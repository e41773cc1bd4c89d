package gossip

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/clock"
)

// Tracker remembers the newest heartbeat of every peer and when it came. Its methods may be
// called concurrently.
type Tracker struct {
	// Clock learns what time members say it is; nil learns nothing. It is set before the first heartbeat.
	Clock  *clock.Clock
	news   chan struct{}
	urgent chan struct{}
	ends   chan struct{}
	mu     sync.Mutex // guards the rest
	heard  map[plan.PeerID]heard
	log    plan.Partings // of this node
	paces  Paces
	turns  linkTurns // of this node's links
	// coordinates is who coordinates the steps of a generation, where that is not its plan's coordinator.
	coordinates struct {
		generation plan.Generation
		by         plan.PeerID
	}
}

type heard struct {
	beat Heartbeat
	at   time.Time
	// pace is the time until the next one that was usual then.
	pace time.Duration
	// stalledSince is when the peer first reported the generation it gives up now.
	stalledSince time.Time
	// links are those of beat, which has more of them than the newest heartbeat where they take turns.
	links []heardLink
}

// NewTracker returns a tracker that has heard nobody.
func NewTracker() *Tracker {
	return &Tracker{news: make(chan struct{}, 1), urgent: make(chan struct{}, 1), ends: make(chan struct{}, 1), heard: map[plan.PeerID]heard{}}
}

// News receives a value after heartbeats were noted. It has one reader.
func (t *Tracker) News() <-chan struct{} { return t.news }

// Urgent receives a value after a peer has said anything new about a generation that has ended for it, that something
// became slower, or that its copies are done. It has one reader.
func (t *Tracker) Urgent() <-chan struct{} { return t.urgent }

// Ends receives a value after a peer has given another generation up, or the restoration of a checkpoint. It has one reader.
func (t *Tracker) Ends() <-chan struct{} { return t.ends }

// Note takes in a heartbeat that came at a time.
func (t *Tracker) Note(b Heartbeat, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b = b.in(t.log)
	h := heard{beat: b, at: now, pace: t.paces.Of(b.Peer)}
	if h.links = remembered(t.heard[b.Peer], b, now, h.pace); len(h.links) > len(b.Links) {
		h.beat.Links = nil
		for _, l := range h.links {
			h.beat.Links = append(h.beat.Links, l.LinkRate)
		}
	}
	if b.Stalled != 0 {
		h.stalledSince = now
		if old := t.heard[b.Peer]; old.beat.Stalled == b.Stalled {
			h.stalledSince = old.stalledSince
		}
	}
	old := t.heard[b.Peer].beat
	t.heard[b.Peer] = h
	stir(t.news)
	if old.Stalled != b.Stalled || old.NoRestore != b.NoRestore {
		stir(t.ends)
	}
	if old.Slower != b.Slower || old.Copying && !b.Copying || old.Stalled != b.Stalled || old.NoReplay != b.NoReplay || old.NoRestore != b.NoRestore || !slices.Equal(old.Retained, b.Retained) {
		stir(t.urgent)
	}
}

// Follow notes by which recoveries this node's log went. A member that changes over to this lineage, or has not heard of it, may speak of
// a generation of its own that has the number of one here.
func (t *Tracker) Follow(log plan.Partings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, parted := t.log.Since(log); !parted {
		return
	}
	t.log = slices.Clone(log)
	for p, h := range t.heard {
		h.beat = h.beat.in(log)
		t.heard[p] = h
	}
}

// in returns what a heartbeat says to whoever has a log: that of a generation of another lineage is a sign of life, and tells of the run
// what does not depend on generations.
func (b Heartbeat) in(log plan.Partings) Heartbeat {
	if b.Lineage == log.Of(b.Generation) {
		return b
	}
	return Heartbeat{Peer: b.Peer, UnixMillis: b.UnixMillis, Phase: b.Phase, Blocked: b.Blocked, Finished: b.Finished, Extends: b.Extends}
}

// stir wakes a channel's reader, unless it will look anyway.
func stir(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
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

// Silent returns for how long a peer has not been heard, beside the slack of its pace, counted from since at the earliest:
// whoever starts to listen cannot blame others for what it missed.
func (t *Tracker) Silent(peer plan.PeerID, since, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.heard[peer].at
	if at.Before(since) {
		at = since
	}
	return max(0, now.Sub(at)-t.slack(peer))
}

// Heard returns when a peer was heard of last; zero if it never was.
func (t *Tracker) Heard(peer plan.PeerID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard[peer].at
}

// Ago returns the time since a peer was heard, if it ever was. Slack says how much of it is usual.
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
	// By are the members that gave it up, Accusations what they say of one another.
	By          []plan.PeerID
	Accusations []Accusation
}

// Accusation is one member's word on who made it give a generation up.
type Accusation struct {
	By plan.PeerID
	plan.Fault
}

// Own reports whether a worker says that its own result is at fault.
func (a Accusation) Own() bool { return a.By == a.Accused }

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
		s.By = append(s.By, p)
		if f := h.beat.Fault; f != nil && slices.Contains(peers, f.Accused) {
			s.Accusations = append(s.Accusations, Accusation{p, f.Told()})
		}
	}
	return s
}

// Found returns what members of a plan say of those of other replicas with local steps, each of each once: what was wrong with a message. One
// who says it twice is one witness. Of lines and waits the log hears otherwise.
func (t *Tracker) Found(p plan.Plan) (all []Accusation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Local == nil {
		return nil
	}
	for _, by := range p.Peers() {
		b := t.heard[by].beat
		if b.Generation != p.Generation {
			continue
		}
		for i, f := range b.Found {
			again := slices.ContainsFunc(b.Found[:i], func(other FoundFault) bool { return other.Generation == f.Generation && other.Accused == f.Accused })
			wrong := f.Kind == plan.BadFrame || f.Kind == plan.BadTensor || f.Kind == plan.BadReport
			if wrong && !again && f.Generation == p.Generation && f.Accused != by && p.Places(f.Accused) {
				all = append(all, Accusation{by, f.Told()})
			}
		}
	}
	return all
}

// Finished returns the peers that say that the run was finished, with the step at which it was.
func (t *Tracker) Finished() map[plan.PeerID]plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := map[plan.PeerID]plan.Step{}
	for p, h := range t.heard {
		if h.beat.Finished > 0 {
			said[p] = h.beat.Finished
		}
	}
	return said
}

// Whole returns what a peer's newest heartbeat says of the checkpoint that it keeps whole.
func (t *Tracker) Whole(peer plan.PeerID) plan.WholeCopy {
	if b, ok := t.Last(peer); ok && b.Whole != nil {
		return *b.Whole
	}
	return plan.WholeCopy{}
}

// Restorers returns who may compute lost layers of the checkpoint of a step again, and has not said that it cannot. The first one does.
func (t *Tracker) Restorers(may []plan.PeerID, checkpoint plan.Step) []plan.PeerID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(may), func(p plan.PeerID) bool { return t.heard[p].beat.NoRestore == checkpoint })
}

// SetCoordinator has a peer's word on the steps of a generation count as the coordinator's, whose place it may have taken.
func (t *Tracker) SetCoordinator(g plan.Generation, by plan.PeerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.coordinates.generation, t.coordinates.by = g, by
}

// coordinator returns the newest heartbeat of who coordinates the steps of a plan. Callers hold mu.
func (t *Tracker) coordinator(p plan.Plan) heard {
	if c := t.coordinates; c.generation == p.Generation {
		return t.heard[c.by]
	}
	return t.heard[p.Coordinator().Peer]
}

// silentAfter is how long a coordinator's newest word counts.
const silentAfter = 5 * Every

// Newest returns the newest step of a plan, as its coordinator reports. Where that is silent now, it is what the
// median member reports: nobody else's word counts alone.
func (t *Tracker) Newest(p plan.Plan, now time.Time) plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.coordinator(p); h.beat.Generation == p.Generation && now.Sub(h.at) <= silentAfter {
		return h.beat.Step
	}
	var reached []plan.Step
	for _, peer := range p.Peers() {
		if b := t.heard[peer].beat; b.Generation == p.Generation {
			reached = append(reached, b.Step)
		}
	}
	return lowerMedian(reached)
}

// StepTime returns how long a step of a plan takes, as the median member reports; 0 while nobody does.
func (t *Tracker) StepTime(p plan.Plan) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var said []int64
	for _, peer := range p.Peers() {
		if b := t.heard[peer].beat; b.Generation == p.Generation && b.StepNanos > 0 {
			said = append(said, b.StepNanos)
		}
	}
	return time.Duration(lowerMedian(said))
}

// Copying reports whether a member of a plan says that checkpoints or copies of its stages are under way.
func (t *Tracker) Copying(p plan.Plan) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(p.Peers(), func(peer plan.PeerID) bool {
		b := t.heard[peer].beat
		return b.Generation == p.Generation && b.Copying
	})
}

// lowerMedian sorts values and returns the middle one, 0 of none.
func lowerMedian[N cmp.Ordered](values []N) (middle N) {
	if len(values) == 0 {
		return middle
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// Wish returns the schedule that a leader's newest heartbeat asks for; zero without one.
func (t *Tracker) Wish(leader plan.PeerID) ScheduleWish {
	if b, ok := t.Last(leader); ok && b.Wish != nil {
		return *b.Wish
	}
	return ScheduleWish{}
}

// Spares returns what a leader's newest heartbeat says of members without a stage in the plan of a generation; zero where it says nothing.
func (t *Tracker) Spares(leader plan.PeerID, g plan.Generation) Spares {
	if b, ok := t.Last(leader); ok && b.Spares != nil && b.Spares.Generation == g {
		return *b.Spares
	}
	return Spares{}
}

// Hints returns what a leader's newest heartbeat says would help the plan of a generation; none where it says nothing.
func (t *Tracker) Hints(leader plan.PeerID, g plan.Generation) []string {
	if b, ok := t.Last(leader); ok && b.Hints != nil && b.Hints.Generation == g {
		return b.Hints.Texts
	}
	return nil
}

// Running returns a plan with the schedule of its coordinator's newest step, and that step.
func (t *Tracker) Running(p plan.Plan) (plan.Plan, plan.Step) {
	t.mu.Lock()
	b := t.coordinator(p).beat
	t.mu.Unlock()
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
// of a stage are missing, or of a step on another schedule.
func (t *Tracker) Seen(plan plan.Plan) (out planner.Measured, ok bool) {
	schedule := plan.ScheduleChoice().String()
	t.mu.Lock()
	defer t.mu.Unlock()
	var took []int64
	for _, peer := range plan.Peers() {
		b := t.heard[peer].beat
		other := b.Schedule != "" && b.Schedule != schedule && plan.Local == nil // replicas with local steps name their own part of it
		if b.Generation != plan.Generation || other {
			return out, false
		}
		seen := b.Measured(plan)
		out.Stages, out.Links = append(out.Stages, seen.Stages...), append(out.Links, seen.Links...)
		took = append(took, b.StepNanos)
	}
	if slices.Sort(took); len(took) > 0 { // a step takes about as long for all of them
		out.StepNanos = min(took[len(took)-1], 4*took[len(took)/2])
	}
	stages := 0
	for _, pipe := range plan.Replicas {
		stages += len(pipe.Stages)
	}
	return out, len(out.Stages) == stages && out.StepNanos > 0
}

// Slower returns by which steps of a plan's generation its members had become slower, those that had.
func (t *Tracker) Slower(p plan.Plan) map[plan.PeerID]plan.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := map[plan.PeerID]plan.Step{}
	for _, peer := range p.Peers() {
		if b := t.heard[peer].beat; b.Generation == p.Generation && b.Slower != 0 {
			said[peer] = b.Slower
		}
	}
	return said
}
