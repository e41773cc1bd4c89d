package node

import (
	"fmt"
	"slices"
)

// Phase names the part of its life that a node is in. The zero value is invalid.
type Phase string

// The phases of a node's life.
const (
	Joining   Phase = "joining"   // reaching the swarm and the consensus log
	Profiling Phase = "profiling" // measuring devices, fetching the run's text
	Waiting   Phase = "waiting"   // a member without a placement in the current plan
	Loading   Phase = "loading"   // building the stage and fetching its state
	Training  Phase = "training"  // running steps
	Draining  Phase = "draining"  // leaving: still training until the roster shrinks
	Serving   Phase = "serving"   // the run is finished: staying until an owner has the model
	Stopped   Phase = "stopped"   // done; nothing runs any more
)

// transitions is the whole state machine: from each phase, the phases that may follow.
// Every phase may also go to Stopped.
var transitions = map[Phase][]Phase{
	Joining:   {Profiling},
	Profiling: {Waiting},
	Waiting:   {Loading, Draining, Serving},
	Loading:   {Training, Waiting, Draining, Serving},
	Training:  {Waiting, Loading, Draining, Serving},
	Draining:  {Serving},
	Serving:   {},
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
		panic(fmt.Sprintf("node: no transition from %q to %q", m.phase, next))
	}
	from := m.phase
	m.phase = next
	m.changed(from, next)
}
