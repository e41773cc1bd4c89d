package node

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/schedule/draw"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// leastShown is how long a simulation is shown before it is made again; for long steps
	// it is so many times what making it took, so that looking on costs a node nothing.
	leastShown    = 5 * time.Second
	portraitShare = 500
	// mostSamples are the newest looks at the plan of which the middle times are shown, if
	// somebody has looked within oldSample.
	mostSamples = 7
	oldSample   = time.Minute
	// mostDrawn bounds the actions of the picture: of longer steps it shows the beginning.
	mostDrawn = 6000
)

// portrait is a step of the plan that runs, simulated at the pace that its nodes tell of.
type portrait struct {
	plan  plan.Plan // on the course of its newest step
	step  plan.Step // that the pace is of; 0 is that of profiles
	costs []model.LayerCost
	list  schedule.Schedule
	// memory is by seat what its stages take.
	memory []int64
	// samples are what was seen at the newest looks, seen the middle of them.
	samples []planner.Seen
	seen    planner.Seen
	pace    pace
	line    schedule.Timeline
	// exposed is by seat how long a message was under way that it stood still for.
	exposed []schedule.Nanos
	until   time.Time // it need not be made again
}

// portraits remembers the newest one.
type portraits struct {
	mu     sync.Mutex // guards newest; held while one is made, so that all who ask wait for one
	newest portrait
}

// portray gives the portrait of the plan that runs. The error wraps api.ErrNotReady where
// there is none.
func (n *Node) portray(state consensus.State) (portrait, error) {
	if state.Run == nil || state.Plan.Generation == 0 {
		return portrait{}, fmt.Errorf("node: no plan yet: %w", api.ErrNotReady)
	}
	plan, step := n.beats.Running(state.Plan)
	n.portraits.mu.Lock()
	defer n.portraits.mu.Unlock()
	r, now := &n.portraits.newest, time.Now()
	same := r.plan.Generation == plan.Generation && r.plan.ScheduleChoice().String() == plan.ScheduleChoice().String()
	if same && now.Before(r.until) {
		return *r, nil
	}
	if !same {
		next, err := program(*state.Run, plan)
		if err != nil {
			return portrait{}, err
		}
		*r = next
	}
	if now.Sub(r.until) > oldSample {
		r.samples = nil
	}
	sample, _ := n.beats.Seen(plan) // what is missing is as the profiles say
	r.look(step, sample)
	if err := r.simulate(newPace(state, r.costs, r.seen)); err != nil {
		return portrait{}, err
	}
	r.until = now.Add(max(leastShown, portraitShare*time.Since(now)))
	return *r, nil
}

// program is what of a portrait does not depend on the pace.
func program(run plan.RunSpec, plan plan.Plan) (r portrait, err error) {
	r = portrait{plan: plan, costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32)} // a stage in halves that nobody has seen yet is drawn a little too long
	if r.list, err = plan.Programs(); err != nil {
		return r, err
	}
	for w, seat := range plan.Workers() {
		var bytes int64
		for _, h := range plan.StagesOf(seat) {
			m, err := run.Stack(plan.At(h), plan.Shares(h), r.list.Use(w, h.Replica, h.Stage)).Memory()
			if err != nil {
				return r, fmt.Errorf("node: memory of replica %d stage %d: %w", h.Replica, h.Stage, err)
			}
			bytes += m.Total()
		}
		r.memory = append(r.memory, bytes)
	}
	return r, nil
}

// look takes in what is seen at a step. A single look is of one step, on machines that do other
// things too.
func (r *portrait) look(step plan.Step, sample planner.Seen) {
	if len(sample.Stages) > 0 && (step != r.step || len(r.samples) == 0) {
		r.samples = append(r.samples, sample)
		r.samples = r.samples[max(0, len(r.samples)-mostSamples):]
	}
	r.step, r.seen = step, planner.Median(r.samples)
}

// simulate runs the step.
func (r *portrait) simulate(p pace) (err error) {
	r.pace = p
	if r.line, err = schedule.Simulate(r.list, p.timing(r.plan, r.list.Segments)); err != nil {
		return fmt.Errorf("node: simulate generation %d: %w", r.plan.Generation, err)
	}
	r.exposed = make([]schedule.Nanos, len(r.line.Workers))
	for w, waits := range r.line.Waits() {
		for _, wait := range waits {
			r.exposed[w] += wait.End - wait.Exposed
		}
	}
	return nil
}

// Schedule draws the portrait for the page.
func (n *Node) Schedule(w io.Writer) error {
	r, err := n.portray(n.raft.State())
	if err != nil {
		return err
	}
	return r.draw(w, n.self)
}

// draw makes the picture, in which the rows of a node are told to be its own.
func (r portrait) draw(w io.Writer, self plan.PeerID) error {
	p := draw.Panel{Title: "a step on " + r.plan.Schedule, Line: r.line, Segments: r.list.Segments}
	note := "simulated with the profiles of its devices and links"
	if r.step > 0 {
		note = fmt.Sprintf("simulated with what steps up to %d took on its devices and links", r.step)
	}
	p.Notes = []string{note + ": " + plan.Time(r.line.Makespan)}
	for _, seat := range r.plan.Workers() {
		who := seat.Peer.Short()
		if seat.Peer == self {
			who = "THIS NODE"
		}
		p.Names = append(p.Names, fmt.Sprintf("%s %s, %s", who, seat.Device, r.layersOn(seat)))
	}
	if cut := upTo(r.line, mostDrawn); cut.Makespan < r.line.Makespan {
		p.Line = cut
		p.Notes = append(p.Notes, fmt.Sprintf("its first %s: all of it would be too much to draw here", plan.Time(cut.Makespan)))
	}
	return draw.SVG(w, p)
}

// layersOn names the layers of a seat's stages.
func (r portrait) layersOn(seat plan.WorkerID) string {
	var parts []string
	for _, h := range r.plan.StagesOf(seat) {
		l := r.plan.At(h).Layers
		parts = append(parts, fmt.Sprintf("%d-%d", l.First, l.End-1))
	}
	return "layers " + strings.Join(parts, " ")
}

// upTo is a timeline up to where it has so many actions: all of it if it has no more.
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
