package node

import (
	"slices"
	"sync"
	"time"

	"pnode/pipeline/link"
	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// linkSampleBytes must have been sent since the last look for a rate to mean something:
	// what fits into buffers is gone at once.
	linkSampleBytes = 256 << 10
	// queuedSampleBytes of them have to have waited for others to tell the rate by themselves.
	queuedSampleBytes = 64 << 10
	// maxBeatLinks bounds the links that a heartbeat tells of: those with the most traffic.
	maxBeatLinks = 16
	// windowSteps are the steps of which the middle times count as one look at the schedule.
	windowSteps = 4
)

// BeatLink is what the messages to a neighbour showed of the link.
type BeatLink struct {
	Peer        plan.PeerID `json:"peer"`
	BytesPerS   int64       `json:"bytes_per_s,omitempty"`
	RTTNanos    int64       `json:"rtt_nanos"`
	JitterNanos int64       `json:"jitter_nanos"`
}

// linkMeter turns the counters of a session into what heartbeats tell.
type linkMeter struct {
	mu    sync.Mutex // guards the rest
	stats func() []link.Stats
	base  map[plan.PeerID]link.Stats // at the last rate
	rates map[plan.PeerID]int64
}

// follow meters a session until the function that it returns is called.
func (m *linkMeter) follow(stats func() []link.Stats) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats, m.base, m.rates = stats, map[plan.PeerID]link.Stats{}, map[plan.PeerID]int64{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stats = nil
	}
}

// links are those that carried payload, the busiest first.
func (m *linkMeter) links() []BeatLink {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		return nil
	}
	all := slices.DeleteFunc(m.stats(), func(s link.Stats) bool { return s.PayloadSent == 0 || s.RTT <= 0 })
	slices.SortStableFunc(all, func(a, b link.Stats) int {
		switch {
		case a.PayloadSent > b.PayloadSent:
			return -1
		case a.PayloadSent < b.PayloadSent:
			return 1
		}
		return 0
	})
	var links []BeatLink
	for _, s := range all[:min(len(all), maxBeatLinks)] {
		since := s
		since.PayloadSent -= m.base[s.Peer].PayloadSent
		since.FramesSent -= m.base[s.Peer].FramesSent
		since.Busy -= m.base[s.Peer].Busy
		since.QueuedBytes -= m.base[s.Peer].QueuedBytes
		since.QueuedTime -= m.base[s.Peer].QueuedTime
		if since.PayloadSent >= linkSampleBytes {
			m.base[s.Peer], m.rates[s.Peer] = s, perSecond(since)
		}
		links = append(links, BeatLink{Peer: s.Peer, BytesPerS: m.rates[s.Peer], RTTNanos: s.RTT.Nanoseconds(), JitterNanos: s.Jitter.Nanoseconds()})
	}
	return links
}

// perSecond is a link's rate: that of messages which stood behind others. Without those it is
// bounded from above: a message is under way for its transfer, a round trip and what its
// acknowledgement waits, for less where others are at the same time. 0 is no bound.
func perSecond(s link.Stats) int64 {
	if s.QueuedBytes >= queuedSampleBytes && s.QueuedTime > 0 {
		return int64(float64(s.QueuedBytes) / s.QueuedTime.Seconds())
	}
	transfers := s.Busy - time.Duration(s.FramesSent)*(s.RTT+link.AckEvery)
	if transfers <= 0 {
		return 0
	}
	return int64(float64(s.PayloadSent) / transfers.Seconds())
}

// seen is what the heartbeats tell of a plan's newest step; not ok while a stage's is missing.
func (t *tracker) seen(plan plan.Plan) (out planner.Seen, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, peer := range plan.Peers() {
		b := t.heard[peer].beat
		if b.Generation != plan.Generation {
			return out, false
		}
		for _, s := range b.Stages {
			out.Stages = append(out.Stages, planner.StageSeen{
				Replica: s.Replica, Stage: s.Stage, ForwardNanos: s.ForwardNanos, BackwardNanos: s.BackwardNanos, UpdateNanos: s.UpdateNanos,
			})
		}
		for _, l := range b.Links {
			if plan.Places(l.Peer) {
				out.Links = append(out.Links, planner.LinkSeen{From: peer, To: l.Peer, BytesPerS: l.BytesPerS, RTTNanos: l.RTTNanos, JitterNanos: l.JitterNanos})
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

// scheduleWatch is what the planner remembers of how the running schedule does.
type scheduleWatch struct {
	generation plan.Generation
	course     string    // that runs
	newest     plan.Step // sampled
	samples    []planner.Seen
	watch      planner.Watch
	// why a new plan is to change the schedule; with seen, its times.
	why  string
	seen planner.Seen
	// wanted is the course that the plan is to take.
	wanted string
	// links are those of the newest window, of whatever generation: the plan behind a course
	// that a commit changed has them too, or it would begin with the course before.
	links []planner.LinkSeen
}

// look takes in the newest step, if it is a new one. Where another course is better it is
// made known to the coordinator; where it takes a new plan, look gives the reason for one.
func (s *scheduleWatch) look(n *Node, state consensus.State) string {
	if s.generation != state.Plan.Generation {
		*s = scheduleWatch{generation: state.Plan.Generation, course: state.Plan.ScheduleChoice().String(), newest: state.Plan.Start + 1, links: s.links} // the first step warms up
		n.setWanted(nil)
	}
	plan, step := n.beats.running(state.Plan)
	if course := plan.ScheduleChoice().String(); course != s.course {
		n.log.Info("the schedule has changed", "step", step, "from", s.course, "to", course)
		*s = scheduleWatch{generation: s.generation, course: course, newest: step, wanted: s.wanted, links: s.links}
	}
	if s.why != "" || state.Paused() || step <= s.newest {
		return s.why
	}
	sample, ok := n.beats.seen(plan)
	if !ok {
		return ""
	}
	s.newest = step
	if s.samples = append(s.samples, sample); len(s.samples) == windowSteps {
		s.decide(n, state, plan)
	}
	return s.why
}

// decide ends a window.
func (s *scheduleWatch) decide(n *Node, state consensus.State, plan plan.Plan) {
	seen := planner.Median(s.samples)
	s.samples, s.links = s.samples[:0], seen.Links
	r, err := planner.Reselect(planInput(state), plan, seen)
	if err != nil {
		n.log.Debug("schedule not compared", "cause", err)
		return
	}
	d := s.watch.Note(plan.Generation, r, state.Run.Train.Steps-s.newest)
	n.log.Debug("schedule compared", "step", s.newest, "measured", time.Duration(r.Seen), "promised", time.Duration(r.Promised),
		"now", time.Duration(r.Now), "best", time.Duration(r.Then), "verdict", d.Reason)
	if !d.Replan {
		return
	}
	n.log.Info("the schedule is to change", "why", d.Reason)
	course := r.Plan.ScheduleChoice().String()
	if r.InPlace && course != s.wanted && len(course) <= maxCourse {
		s.wanted = course
		n.setWanted(&Wanted{Generation: plan.Generation, Course: course, Why: wire.Clip(d.Reason, maxWhy)})
		return
	}
	s.why, s.seen = d.Reason, seen // a commit cannot make this change, or did not
}

// running is a plan on the course that it has by now.
func (s *scheduleWatch) running(p plan.Plan) plan.Plan {
	course, err := plan.ParseScheduleChoice(s.course)
	if err != nil {
		return p
	}
	on, err := p.WithSchedule(course)
	if err != nil {
		return p
	}
	return on
}

// make gives the next generation: the same devices with the schedule that the watch found, if
// that is the reason for it.
func (s *scheduleWatch) make(in planner.Input, why string) (plan.Plan, plan.Reasons, error) {
	if why != "" && why == s.why && in.Previous != nil {
		if r, err := planner.Reselect(in, s.running(*in.Previous), s.seen); err == nil {
			return r.Plan, r.Reasons, nil
		}
	}
	in.Links = s.links
	return planner.Make(in)
}
