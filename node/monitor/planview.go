package monitor

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/pipeline/schedule"
	"pnode/pipeline/schedule/draw"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// A simulation is shown for leastShown before it is made again; for long steps for
	// shownShare times what making it took, so that looking on costs a node nothing.
	leastShown = 5 * time.Second
	shownShare = 500
	// mostSamples are the newest looks at the plan whose middle times are shown, if somebody
	// has looked within oldSample.
	mostSamples = 7
	oldSample   = time.Minute
	// mostDrawn bounds the actions of the picture: of longer steps it shows the beginning.
	mostDrawn = 6000
)

// planView is one step of the current plan, simulated with the stage times of the newest
// heartbeats.
type planView struct {
	plan  plan.Plan // with the schedule of its newest step
	step  plan.Step // whose times are used; 0 uses the profiles'
	list  schedule.Schedule
	input planner.Input // without members
	// memory is what each worker's stages take, in bytes, in the plan's order.
	memory []int64
	// samples are the times at the newest looks, seen the middle of them.
	samples []planner.Measured
	seen    planner.Measured
	figures figures
	line    schedule.Timeline
	// alone is by replica what its inner steps take, in nanoseconds; empty without local steps.
	alone map[plan.Replica]int64
	// exposed is by worker how long a message was under way that it stood still for.
	exposed []schedule.Nanos
	seats   []api.SeatStatus
	links   []api.LinkStatus
	until   time.Time // it need not be made again
}

// viewCache keeps the newest view.
type viewCache struct {
	mu     sync.Mutex // guards newest; held while one is made, so that all who ask wait for one
	newest planView
}

// planView returns the view of the current plan. The error wraps api.ErrNotReady without one.
func (m *Monitor) planView(state consensus.State) (planView, error) {
	if state.Run == nil || state.Plan.Generation == 0 {
		return planView{}, api.NotReady("the run has no plan yet")
	}
	running, step := m.Beats.Running(state.Plan)
	m.view.mu.Lock()
	defer m.view.mu.Unlock()
	v, now := &m.view.newest, time.Now()
	same := v.plan.Generation == running.Generation && v.plan.ScheduleChoice().String() == running.ScheduleChoice().String()
	if same && now.Before(v.until) {
		return *v, nil
	}
	if !same {
		next, err := newPlanView(*state.Run, running)
		if err != nil {
			return planView{}, err
		}
		*v = next
	}
	if now.Sub(v.until) > oldSample {
		v.samples = nil
	}
	// A single look is of one step, on machines that do other things too.
	if sample, _ := m.Beats.Seen(running); len(sample.Stages) > 0 && (step != v.step || len(v.samples) == 0) {
		v.samples = append(v.samples, sample)
		v.samples = v.samples[max(0, len(v.samples)-mostSamples):]
	}
	v.step, v.seen = step, planner.Median(v.samples)
	// Where the profiles lack a device that was just lost, the step is shown as it was until the next plan.
	if err := v.simulate(state); err != nil && v.line.Makespan == 0 {
		return planView{}, err
	}
	v.alone = roundView{state, m.Beats, now}.alone()
	v.seats, v.links = v.workers(), v.lines()
	v.until = now.Add(max(leastShown, shownShare*time.Since(now)))
	return *v, nil
}

// newPlanView returns what of a view does not depend on times.
func newPlanView(run plan.RunSpec, p plan.Plan) (v planView, err error) {
	v = planView{plan: p, input: planner.InputOf(run)}
	if v.list, err = p.Programs(); err != nil {
		return v, err
	}
	for w, worker := range p.Workers() {
		var bytes int64
		for _, h := range p.StagesOf(worker) {
			m, err := run.StageStack(p, h, v.list.Use(w, h.Replica, h.Stage)).Memory()
			if err != nil {
				return v, fmt.Errorf("monitor: memory of replica %d stage %d: %w", h.Replica, h.Stage, err)
			}
			bytes += m.Total()
		}
		v.memory = append(v.memory, bytes)
	}
	return v, nil
}

// simulate runs the step with what profiles and heartbeats say.
func (v *planView) simulate(state consensus.State) (err error) {
	v.figures = newFigures(state, v.seen)
	in := v.input
	in.Members = membersAround(state, v.plan)
	timing, err := planner.Timing(in, v.plan, v.seen)
	if err == nil {
		v.line, err = schedule.Simulate(v.list, timing)
	}
	if err != nil {
		return fmt.Errorf("monitor: simulate generation %d: %w", v.plan.Generation, err)
	}
	v.exposed = make([]schedule.Nanos, len(v.line.Workers))
	for w, waits := range v.line.Waits() {
		for _, wait := range waits {
			v.exposed[w] += wait.End - wait.Exposed
		}
	}
	return nil
}

// membersAround returns the members with a part in a plan, with what plans count on of their claims, and those that are gone with their claims. Of the
// others it has the links to these, which say what lines are like that nobody measured.
func membersAround(state consensus.State, p plan.Plan) (all []planner.Member) {
	counted, in := map[plan.PeerID]plan.Profile{}, placedBy(p)
	for _, c := range state.Counted() {
		counted[c.Peer] = c.Profile
	}
	for _, m := range state.Members {
		profile, ok := counted[m.Peer]
		if !ok {
			profile = m.Profile
		}
		if !in[m.Peer] {
			var near []plan.LinkProfile
			for _, l := range profile.Links {
				if in[l.Peer] {
					near = append(near, l)
				}
			}
			if len(near) == 0 {
				continue
			}
			profile = plan.Profile{Links: near}
		}
		all = append(all, planner.Member{Peer: m.Peer, Profile: profile})
	}
	return all
}

// placedBy returns the peers that have a part in a plan.
func placedBy(p plan.Plan) map[plan.PeerID]bool {
	placed := map[plan.PeerID]bool{}
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			placed[place.Peer] = true
		}
	}
	return placed
}

// Schedule draws the view for the page, as SVG.
func (m *Monitor) Schedule(w io.Writer) error {
	state, _ := m.Known()
	v, err := m.planView(state)
	if err != nil {
		return err
	}
	return v.draw(w, func(at plan.WorkerID) string {
		name := consensus.DeviceOf(state, at)
		if at.Peer == m.Self {
			name += ", this node"
		}
		return name
	})
}

// draw makes the picture; nameOf says what a device is called.
func (v planView) draw(w io.Writer, nameOf func(plan.WorkerID) string) error {
	p := draw.Panel{Title: "a step on " + v.plan.ScheduleChoice().Short(), Line: v.line, Segments: v.list.Segments}
	note := "simulated with the profiles of its devices and links"
	if v.step > 0 {
		note = fmt.Sprintf("simulated with what steps up to %d took on its devices and links", v.step)
	}
	p.Notes = []string{note + ": " + plan.Time(v.line.Makespan)}
	for _, worker := range v.plan.Workers() {
		name := nameOf(worker) + ", layer"
		stages := v.plan.StagesOf(worker)
		if len(stages) > 1 || v.plan.At(stages[0]).Layers.Len() > 1 {
			name += "s"
		}
		for _, h := range stages {
			l := v.plan.At(h).Layers
			if name += fmt.Sprintf(" %d", l.First); l.Len() > 1 {
				name += fmt.Sprintf("-%d", l.End-1)
			}
		}
		p.Names = append(p.Names, name)
	}
	if cut := upTo(v.line, mostDrawn); cut.Makespan < v.line.Makespan {
		p.Line = cut
		p.Notes = append(p.Notes, fmt.Sprintf("its first %s: all of it would be too much to draw here", plan.Duration(cut.Makespan)))
	}
	return draw.SVG(w, p)
}

// upTo returns the beginning of a timeline with at most so many actions, whole ones.
func upTo(line schedule.Timeline, most int) schedule.Timeline {
	var starts []schedule.Nanos
	for _, row := range line.Workers {
		for _, s := range row {
			starts = append(starts, s.Start)
		}
	}
	if len(starts) <= most {
		return line
	}
	slices.Sort(starts)
	end := max(starts[most], 1)
	out := schedule.Timeline{Makespan: end, PeakLive: line.PeakLive}
	for _, row := range line.Workers {
		row = slices.DeleteFunc(slices.Clone(row), func(s schedule.Span) bool { return s.End > end })
		out.Workers = append(out.Workers, row)
	}
	out.Messages = slices.DeleteFunc(slices.Clone(line.Messages), func(m schedule.Message) bool { return m.Arrived > end })
	return out
}
