package link

import (
	"sync/atomic"

	"pnode/planner/plan"
)

// movement counts what comes and goes for a step, so that a peer that sends something else, or nothing, can be told
// from a link that is slow.
type movement struct {
	step  atomic.Uint64
	count atomic.Uint64
}

// came counts bytes of a message that came for the first time, if its step is the one in question or next to it:
// parameters of the step before come late, and what the next one needs early.
func (m *movement) came(step plan.Step, bytes int) {
	if step+1-plan.Step(m.step.Load()) <= 2 {
		m.count.Add(uint64(bytes) + 1)
	}
}

// at notes the newest step.
func (m *movement) at(step plan.Step) {
	for old := m.step.Load(); uint64(step) > old && !m.step.CompareAndSwap(old, uint64(step)); old = m.step.Load() {
	}
}

// went counts pieces that a peer has taken.
func (m *movement) went(pieces int) { m.count.Add(uint64(pieces)) }

// Moved returns a count that grows as bytes come that belong to a step or one next to it, whoever sends them, and as
// peers take what was sent to them.
func (s *Session) Moved(step plan.Step) uint64 {
	s.movement.at(step)
	return s.movement.count.Load()
}
