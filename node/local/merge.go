package local

import (
	"fmt"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/progress"
	"pnode/planner/plan"
)

// rememberedEvents bounds what merge remembers; a node's history is api.HistoryEvents
// long, so nothing older comes again.
const rememberedEvents = 8 * api.HistoryEvents

// key identifies an event that every node reports.
type key struct {
	kind       api.Kind
	generation plan.Generation
	step       plan.Step
	message    string // of an error
}

// merge shows each event of the run once.
type merge struct {
	out Output
	// nameOf returns what people call a node.
	nameOf func(node int) string
	// begun is called after the first step.
	begun func()

	mu    sync.Mutex // guards what follows
	seen  map[key]struct{}
	ring  []key // what is in seen
	next  int   // the oldest place of a full ring
	steps order
	step  time.Time // when the newest step came
	last  plan.Step // of the finished run; 0 while it goes on
	ended bool      // before the last step: nothing is waited for any more, until another plan
	why   string    // nothing moves, as a node said last; empty once things do
}

func newMerge(out Output, nameOf func(int) string, begun func()) *merge {
	return &merge{out: out, nameOf: nameOf, begun: begun, seen: map[key]struct{}{}}
}

// event takes in what a node reports. Events of the run are shown once, from whoever is
// first, and so is an error that several nodes have; what concerns the node alone carries
// its name.
func (m *merge) event(node int, e api.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{kind: e.Kind, generation: e.Generation, step: e.Step}
	switch e.Kind {
	case api.KindStep:
		m.show(m.steps.take(e))
		return
	case api.KindState:
		m.alone(node, e)
		return
	case api.KindWaiting: // told for all when it lasts, see watch
		m.why = e.Message
		return
	case api.KindWarning, api.KindError, api.KindRecovery:
		k.message = e.Message
	case api.KindPlan:
		k.step, m.why, m.ended = 0, "", false
	case api.KindSubstitute: // nodes hear of it at different steps
		k.step = 0
	}
	if !m.first(k) {
		return
	}
	if k.message != "" {
		m.alone(node, e)
		return
	}
	if e.Kind == api.KindDone {
		m.show(m.steps.flush())
		if e.Step == e.Steps {
			m.last = e.Step
		} else {
			m.ended = true
		}
	}
	m.out.Event(e)
}

// show shows steps; the caller holds mu.
func (m *merge) show(steps []api.Event) {
	for _, e := range steps {
		m.out.Event(e)
		m.why = ""
		first := m.step.IsZero()
		if m.step = time.Now(); first {
			m.begun()
		}
	}
}

// flush shows the steps that wait for others, which do not come any more.
func (m *merge) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show(m.steps.flush())
}

// alone shows what concerns one node.
func (m *merge) alone(node int, e api.Event) {
	m.out.Notice(fmt.Sprintf("%s: %s", m.nameOf(node), progress.Describe(e)))
}

// first reports whether k was not seen yet, and remembers it; the caller holds mu.
func (m *merge) first(k key) bool {
	if _, ok := m.seen[k]; ok {
		return false
	}
	m.seen[k] = struct{}{}
	if len(m.ring) < rememberedEvents {
		m.ring = append(m.ring, k)
		return true
	}
	delete(m.seen, m.ring[m.next])
	m.ring[m.next] = k
	m.next = (m.next + 1) % rememberedEvents
	return true
}

// lastStep returns when the newest step came; zero before the first.
func (m *merge) lastStep() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.step
}

// finished returns the last step of a run that was finished, else 0.
func (m *merge) finished() plan.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// waits returns why nothing moves, empty when no node says so.
func (m *merge) waits() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return ""
	}
	return m.why
}

// maxAhead bounds the steps that wait for those before them: what a node's history holds.
const maxAhead = api.HistoryEvents

// order puts the steps that several nodes report into one sequence: each once, none after a newer one. A node that came
// into a generation late reports from there on, and may be heard before another has reported what was
// before: then its steps wait. It is not safe for use by several goroutines.
type order struct {
	generation plan.Generation // of the newest step shown
	step       plan.Step
	ahead      map[plan.Step]api.Event // of that generation, more than a step ahead
}

// take takes in a step and returns those whose turn it is.
func (o *order) take(e api.Event) (turn []api.Event) {
	switch {
	case e.Generation < o.generation, e.Generation == o.generation && e.Step <= o.step:
		return nil
	case e.Generation > o.generation:
		turn = append(o.flush(), e)
		o.generation, o.step, o.ahead = e.Generation, e.Step, map[plan.Step]api.Event{}
		return turn
	}
	o.ahead[e.Step] = e
	if len(o.ahead) > maxAhead {
		return o.flush()
	}
	return o.next()
}

// next returns the steps that follow the newest one shown without a gap.
func (o *order) next() (turn []api.Event) {
	for e, ok := o.ahead[o.step+1]; ok; e, ok = o.ahead[o.step+1] {
		delete(o.ahead, e.Step)
		o.step = e.Step
		turn = append(turn, e)
	}
	return turn
}

// flush gives up on the steps that are missing and returns those that waited for them.
func (o *order) flush() (turn []api.Event) {
	for len(o.ahead) > 0 {
		if _, ok := o.ahead[o.step+1]; !ok {
			o.step++
			continue
		}
		turn = append(turn, o.next()...)
	}
	return turn
}
