package node

import (
	"fmt"
	"slices"
)

// Phase names the part of its life that a node is in. The zero value is invalid.
type Phase uint8

// The phases of a node's life.
const (
	_         Phase = iota
	Joining         // reaching the swarm and the consensus log
	Profiling       // measuring devices, fetching the run's text
	Waiting         // a member without a placement in the current plan
	Loading         // building the stage and fetching its state
	Training        // running steps
	Draining        // leaving: still training until the roster shrinks
	Stopped         // done; nothing runs any more
)

var phaseNames = map[Phase]string{
	Joining: "joining", Profiling: "profiling", Waiting: "waiting", Loading: "loading",
	Training: "training", Draining: "draining", Stopped: "stopped",
}

func (p Phase) String() string {
	if name, ok := phaseNames[p]; ok {
		return name
	}
	return fmt.Sprintf("invalid phase %d", uint8(p))
}

// transitions is the whole state machine: from each phase, the phases that may follow.
// Every phase may also go to Stopped.
var transitions = map[Phase][]Phase{
	Joining:   {Profiling},
	Profiling: {Waiting},
	Waiting:   {Loading, Draining},
	Loading:   {Training, Waiting, Draining},
	Training:  {Waiting, Loading, Draining},
	Draining:  {},
}

// machine holds the current phase. The loop owns it.
type machine struct {
	phase   Phase
	changed func(from, to Phase)
}

// to moves to the next phase; a transition that the table lacks is a broken invariant.
func (m *machine) to(next Phase) {
	if m.phase == next || m.phase == Stopped {
		return
	}
	if next != Stopped && !slices.Contains(transitions[m.phase], next) {
		panic(fmt.Sprintf("node: no transition from %v to %v", m.phase, next))
	}
	from := m.phase
	m.phase = next
	m.changed(from, next)
}
