package schedule

import "fmt"

// layout numbers what a schedule computes. A cell is one micro-batch on one stage of
// one replica; cells are dense, so that a run over the schedule needs no maps.
type layout struct {
	replicas []replicaLayout
	cells    int
	// explicit: the schedule says itself when messages are sent.
	explicit bool
}

type replicaLayout struct {
	stages, micros int
	first          Micro
	cell           int   // of stage 0, micro-batch first
	holder         []int // by stage: the worker
}

// newLayout fails unless every replica is a full grid of stages x micro-batches, each
// stage on one worker.
func newLayout(s Schedule) (*layout, error) {
	forwards := 0
	for w, actions := range s.Workers {
		for i, a := range actions {
			if a.Op == 0 || a.Op >= opCount || a.Replica < 0 || a.Stage < 0 || a.Micro < 0 ||
				a.Replica > MaxNumber || a.Stage > MaxNumber || a.Micro > MaxNumber {
				return nil, s.fail(mark{w: i}, "worker %d: malformed action %+v", w, a)
			}
			if a.Op == Forward {
				forwards++
			}
		}
	}
	l := &layout{}
	if err := l.measure(s, forwards); err != nil {
		return nil, err
	}
	for r := range l.replicas {
		rl := &l.replicas[r]
		rl.cell = l.cells
		l.cells += rl.stages * rl.micros
		if l.cells > forwards || rl.stages == 0 {
			return nil, fmt.Errorf("%w: replica %d has %d stages x %d micro-batches from %d, but the schedule has %d forwards in all",
				ErrInvalid, r, rl.stages, rl.micros, rl.first, forwards)
		}
		if n := max(s.Segments, 1); rl.micros%n != 0 || int(rl.first)%n != 0 {
			return nil, fmt.Errorf("%w: replica %d has %d segments from %d, which are no whole sequences of %d",
				ErrInvalid, r, rl.micros, rl.first, n)
		}
		rl.holder = make([]int, rl.stages)
		for i := range rl.holder {
			rl.holder[i] = -1
		}
	}
	return l, l.assign(s)
}

// measure finds how many replicas there are and how far each extends.
func (l *layout) measure(s Schedule, forwards int) error {
	for w, actions := range s.Workers {
		for i, a := range actions {
			l.explicit = l.explicit || a.Op.communicates()
			if a.Op == Step {
				continue
			}
			if int(a.Replica) >= forwards {
				return s.fail(mark{w: i}, "worker %d: replica %d of a schedule with %d forwards", w, a.Replica, forwards)
			}
			for int(a.Replica) >= len(l.replicas) {
				l.replicas = append(l.replicas, replicaLayout{first: MaxNumber + 1})
			}
			rl := &l.replicas[a.Replica]
			rl.stages = max(rl.stages, int(a.Stage)+1)
			if !a.Op.hasMicro() {
				continue
			}
			if a.Micro < rl.first {
				if rl.micros > 0 {
					rl.micros += int(rl.first - a.Micro)
				}
				rl.first = a.Micro
			}
			rl.micros = max(rl.micros, int(a.Micro-rl.first)+1)
		}
	}
	return nil
}

func (l *layout) assign(s Schedule) error {
	for w, actions := range s.Workers {
		for i, a := range actions {
			if a.Op == Step {
				continue
			}
			switch holder := &l.replicas[a.Replica].holder[a.Stage]; *holder {
			case -1:
				*holder = w
			case w:
			default:
				return s.fail(mark{w: i, *holder: -1}, "worker %d: %v is about a stage of worker %d", w, a, *holder)
			}
		}
	}
	for r, rl := range l.replicas {
		for st, w := range rl.holder {
			if w < 0 {
				return fmt.Errorf("%w: replica %d: no worker holds stage %d of %d", ErrInvalid, r, st, rl.stages)
			}
		}
	}
	return nil
}

// at is the cell of an action about a micro-batch.
func (l *layout) at(a Action) int {
	rl := &l.replicas[a.Replica]
	return rl.cell + int(a.Stage)*rl.micros + int(a.Micro-rl.first)
}

// neighbour is the holder of the stage that many steps further, -1 past the ends.
func (l *layout) neighbour(a Action, step Stage) int {
	rl := &l.replicas[a.Replica]
	if st := int(a.Stage + step); st >= 0 && st < rl.stages {
		return rl.holder[st]
	}
	return -1
}
