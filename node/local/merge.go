package local

import (
	"fmt"
	"sync"

	"pnode/node/api"
	"pnode/node/progress"
	"pnode/planner"
)

// rememberedEvents bounds what merge remembers; a node's history is api.HistoryEvents
// long, so nothing older comes again.
const rememberedEvents = 8 * api.HistoryEvents

// key identifies an event that every node reports.
type key struct {
	kind       api.Kind
	generation planner.Generation
	step       planner.Step
}

// merge shows each event of the run once.
type merge struct {
	out Output

	mu    sync.Mutex // guards what follows
	seen  map[key]struct{}
	order []key // a ring of what is in seen
	next  int   // the oldest place of a full ring
	steps bool
}

func newMerge(out Output) *merge {
	return &merge{out: out, seen: map[key]struct{}{}}
}

// event takes in what a node reports. Events of the run are shown once, from whoever is
// first; what concerns the node alone carries its number.
func (m *merge) event(node int, e api.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{kind: e.Kind, generation: e.Generation, step: e.Step}
	switch e.Kind {
	case api.KindState, api.KindError:
		m.out.Notice(fmt.Sprintf("node %d: %s", node, progress.Describe(e)))
		return
	case api.KindPlan:
		k.step = 0
	}
	if !m.first(k) {
		return
	}
	m.steps = m.steps || e.Kind == api.KindStep
	m.out.Event(e)
}

// first tells whether k was not seen yet, and remembers it; the caller holds mu.
func (m *merge) first(k key) bool {
	if _, ok := m.seen[k]; ok {
		return false
	}
	m.seen[k] = struct{}{}
	if len(m.order) < rememberedEvents {
		m.order = append(m.order, k)
		return true
	}
	delete(m.seen, m.order[m.next])
	m.order[m.next] = k
	m.next = (m.next + 1) % rememberedEvents
	return true
}

// sawStep tells whether any node reported a step.
func (m *merge) sawStep() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.steps
}
