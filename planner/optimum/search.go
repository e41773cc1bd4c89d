package optimum

import (
	"encoding/binary"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// Shape is a number of replicas and stages to look at.
type Shape struct {
	Replicas, Stages int
	// Model leaves room for the gradients that wait.
	Model *cost.Model
	// Micros has by replica how many micro-batches it takes at least.
	Micros []int
}

// Calls lend a search what its caller knows.
type Calls[P any] struct {
	// Cut decides what a replica does with devices that hold layers up to each of some ends, and returns how long its passes take.
	// Time returns the step of all replicas. Both return errors where that does not fit.
	Cut  func(m *cost.Model, devices, ends []int, micros int) (pipe P, passes schedule.Nanos, err error)
	Time func(pipes []P) (schedule.Nanos, error)
	// Stop reports whether to give up now.
	Stop func() bool
}

// Search is a branch and bound over the stages of one shape after the other. A P is a replica that its caller has cut.
type Search[P any] struct {
	Calls[P]
	// Step is the least step so far, Pipes are the replicas that take it; nil where they are not of this search.
	Step  schedule.Nanos
	Pipes []P
	// Left counts the placements of a stage that may still be tried, 0 once it has given up.
	Left int

	on    Devices
	lower Lower
	// micro and passage are the work of layers: all passes of a micro-batch, and those that a gradient waits for.
	micro, passage work

	// Of the shape that is looked at now:
	shape    Shape
	exchange schedule.Nanos // at least, between replicas
	known    map[string]replica[P]
	placed   []P
	used     []bool
	devices  []int // of the replica that is being placed
	ends     []int
}

// replica is a cut that was made before; fits is false where there is none.
type replica[P any] struct {
	pipe   P
	passes schedule.Nanos
	fits   bool
}

// prefix bounds the step of a replica by the stages that have been placed.
type prefix struct {
	// fill is when the next stage begins at the earliest, drain how long it takes from its last gradient to the first
	// stage's.
	fill, drain schedule.Nanos
	bound       schedule.Nanos // of the passes of this replica and of those before
	update      schedule.Nanos
}

// New begins a search on some devices. A step is known to be possible; as many stages may be placed.
func New[P any](on Devices, calls Calls[P], known schedule.Nanos, placements int) *Search[P] {
	s := &Search[P]{Calls: calls, Step: known, Left: placements, on: on, lower: NewLower(on)}
	s.micro = newWork(on, func(t schedule.StageTime) schedule.Nanos { return t.Micro() })
	s.passage = newWork(on, func(t schedule.StageTime) schedule.Nanos { return t.Forward + t.Input })
	return s
}

// Look goes through all plans of a shape that may be shorter than the best one.
func (s *Search[P]) Look(at Shape) {
	s.shape, s.exchange, s.known = at, s.lower.exchange(at.Replicas, at.Stages), map[string]replica[P]{}
	s.used, s.devices, s.ends, s.placed = make([]bool, len(s.on.Model.Devices)), nil, nil, nil
	s.place(prefix{})
}

// place tries every device and range of layers for the next stage.
func (s *Search[P]) place(before prefix) {
	if len(s.devices) == s.shape.Stages {
		s.finish(before)
		return
	}
	first := 0
	if n := len(s.ends); n > 0 {
		first = s.ends[n-1]
	}
	after, m := s.shape.Stages-len(s.devices)-1, s.shape.Model
	for _, d := range s.on.Pool {
		if s.used[d] {
			continue
		}
		from, most := first+1, m.Memory.Layers()-after
		if after == 0 {
			from = most
		}
		for end := from; end <= most && m.Fixed(d, first, end) <= m.Devices[d].FreeBytes; end++ {
			if s.Left--; s.Left <= 0 || s.Left&1023 == 0 && s.Stop() {
				s.Left = 0
				return
			}
			s.used[d] = true
			s.devices, s.ends = append(s.devices, d), append(s.ends, end)
			if next := s.extend(before, first, end); next.bound+next.update+s.exchange < s.Step {
				s.place(next)
			}
			s.used[d] = false
			s.devices, s.ends = s.devices[:len(s.devices)-1], s.ends[:len(s.ends)-1]
		}
	}
}

// extend returns a prefix with the stage that was placed last. Whatever the order of passes is, the stage does all of them after
// the first activation has come, and the last gradient goes back to the first stage after its forwards and input gradients.
func (s *Search[P]) extend(p prefix, first, end int) prefix {
	i, m := len(s.devices)-1, s.shape.Model
	d, micros := s.devices[i], schedule.Nanos(s.shape.Micros[len(s.placed)])
	t := m.Devices[d].Time(first, end)
	slowest := schedule.Nanos(0) // transfer
	if i > 0 {
		bytes := s.on.Bytes(m.Memory.Boundary(first - 1))
		forth, back := m.Link(s.devices[i-1], d).Hop(bytes), m.Link(d, s.devices[i-1]).Hop(bytes)
		p.fill, p.drain = p.fill+forth.Transfer+forth.Latency, p.drain+back.Transfer+back.Latency
		slowest = max(forth.Transfer, back.Transfer)
	}
	p.bound = max(p.bound, p.fill+micros*t.Micro(), p.fill+micros*(t.Forward+t.Input)+p.drain)
	p.update = max(p.update, m.Update(d, first, end))
	rest := schedule.Nanos(0)
	if after := s.shape.Stages - i - 1; after > 0 {
		p.bound = max(p.bound, p.fill+t.Forward+micros*s.micro.least(end, after, s.used), p.fill+t.Forward+micros*s.passage.least(end, after, s.used)+t.Input+p.drain)
		rest = s.passage.least(end, 1, s.used)
	}
	p.bound = max(p.bound, p.fill+t.Forward+t.Input+rest+(micros-1)*slowest+p.drain)
	p.fill, p.drain = p.fill+t.Forward, p.drain+t.Input
	return p
}

// finish goes on with the next replica, or times the plan.
func (s *Search[P]) finish(before prefix) {
	r := s.cut()
	before.bound = max(before.bound, r.passes)
	if !r.fits || before.bound+before.update+s.exchange >= s.Step {
		return
	}
	s.placed = append(s.placed, r.pipe)
	defer func() { s.placed = s.placed[:len(s.placed)-1] }()
	if len(s.placed) < s.shape.Replicas {
		devices, ends := s.devices, s.ends
		s.devices, s.ends = nil, nil
		s.place(prefix{bound: before.bound, update: before.update})
		s.devices, s.ends = devices, ends
		return
	}
	if step, err := s.Time(slices.Clone(s.placed)); err == nil && step < s.Step {
		s.Step, s.Pipes = step, slices.Clone(s.placed)
	}
}

// cut returns the replica of the devices and ends that have been placed.
func (s *Search[P]) cut() replica[P] {
	micros := s.shape.Micros[len(s.placed)]
	key := keyOf(append(append([]int{micros}, s.devices...), s.ends...))
	r, known := s.known[key]
	if !known {
		pipe, passes, err := s.Cut(s.shape.Model, slices.Clone(s.devices), slices.Clone(s.ends), micros)
		if err == nil {
			r = replica[P]{pipe, passes, true}
		}
		s.known[key] = r
	}
	return r
}

// keyOf returns numbers as a value that can be a key.
func keyOf(numbers []int) string {
	var b []byte
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return string(b)
}
