package nanogpt

import (
	"errors"
	"fmt"

	"pnode/pipeline/schedule"
)

// ErrStuck is wrapped by errors about schedules that do not run with one stage a worker.
var ErrStuck = errors.New("nanogpt: the schedule does not run")

// Meter is the contest's model of a line. Each stage has one wire for all that it receives, from either side. A message occupies it
// while its bits pass, and for a fixed time besides, in which nothing else passes: 50 ms are no delay that the next message shares.
// Messages take the wire in the order in which the receiver's program asks for them. What was sent long ago has waited for the wire alone, not for
// the receiver.
type Meter struct {
	BitsPerS int64
	Fixed    schedule.Nanos // of each message
}

// Message returns how long a message of so many bytes occupies a wire.
func (m Meter) Message(bytes int64) schedule.Nanos {
	return schedule.Nanos(8*bytes*1_000_000_000/m.BitsPerS) + m.Fixed
}

// stepRun is a step under way, with one stage a worker.
type stepRun struct {
	stages     []schedule.StageTime
	message    schedule.Nanos
	pos        []int            // by stage: the next action
	free, wire []schedule.Nanos // by stage: when the last action ended, and when the last message had arrived
	// forth and back hold by stage when a micro-batch's output and its input gradient were made.
	forth, back []map[schedule.Micro]schedule.Nanos
}

// Step returns how long the passes of a schedule take whose every message occupies a wire for so long. Stage s is worker s's.
func Step(s schedule.Schedule, stages []schedule.StageTime, message schedule.Nanos) (schedule.Nanos, error) {
	n := len(stages)
	if len(s.Workers) != n {
		return 0, fmt.Errorf("%w: %d workers for %d stages", ErrStuck, len(s.Workers), n)
	}
	r := stepRun{
		stages: stages, message: message, pos: make([]int, n), free: make([]schedule.Nanos, n), wire: make([]schedule.Nanos, n),
		forth: make([]map[schedule.Micro]schedule.Nanos, n), back: make([]map[schedule.Micro]schedule.Nanos, n),
	}
	for stage := range n {
		r.forth[stage], r.back[stage] = map[schedule.Micro]schedule.Nanos{}, map[schedule.Micro]schedule.Nanos{}
	}
	for moved := true; moved; {
		moved = false
		for worker, actions := range s.Workers {
			for r.pos[worker] < len(actions) && r.do(worker, actions[r.pos[worker]]) {
				moved = true
			}
		}
	}
	last := schedule.Nanos(0)
	for worker, actions := range s.Workers {
		if at := r.pos[worker]; at < len(actions) {
			return 0, fmt.Errorf("%w: worker %d waits at %v", ErrStuck, worker, actions[at])
		}
		last = max(last, r.free[worker])
	}
	return last, nil
}

// do carries out an action of a worker, unless what it needs is not made yet.
func (r *stepRun) do(worker int, a schedule.Action) bool {
	if int(a.Stage) != worker || a.Replica != 0 {
		return false
	}
	start, made, needs := r.free[worker], schedule.Nanos(0), false
	switch {
	case a.Op == schedule.Forward && worker > 0:
		made, needs = r.forth[worker-1][a.Micro]
		if !needs {
			return false
		}
	case (a.Op == schedule.Backward || a.Op == schedule.BackwardInput) && worker < len(r.stages)-1:
		made, needs = r.back[worker+1][a.Micro]
		if !needs {
			return false
		}
	}
	if needs {
		r.wire[worker] = max(r.wire[worker], made) + r.message
		start = max(start, r.wire[worker])
	}
	t := r.stages[worker]
	switch a.Op {
	case schedule.Forward:
		r.free[worker] = start + t.Forward
		r.forth[worker][a.Micro] = r.free[worker]
	case schedule.Backward:
		r.free[worker] = start + t.Input + t.Weight
		r.back[worker][a.Micro] = r.free[worker]
	case schedule.BackwardInput:
		r.free[worker] = start + t.Input
		r.back[worker][a.Micro] = r.free[worker]
	case schedule.BackwardWeight:
		r.free[worker] = start + t.Weight
	default:
		return false
	}
	r.pos[worker]++
	return true
}

// Bound returns what no order of the messages of so many micro-batches takes less than, all of one size and with one stage a worker. The first
// one gets to a stage over the wires before it, all that the stage receives follow each other, and what the last one brings has to go back
// to the first stage.
func Bound(stages, micros int, message schedule.Nanos) schedule.Nanos {
	most := 0
	for s := range stages {
		before, received := s-1, micros
		switch {
		case stages == 1:
			return 0
		case s == 0:
			before = 2*stages - 3
		case s < stages-1:
			received = 2 * micros
		}
		most = max(most, before+received+s)
	}
	return schedule.Nanos(most) * message
}
