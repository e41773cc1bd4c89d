package optimum

import (
	"cmp"
	"encoding/binary"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

const (
	// simulateWork is the least work of simulating a replica, askWork the work after which a search asks whether to give up.
	simulateWork = 32
	askWork      = 1 << 10
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
	// Left is the work that may still be done, 0 once the search has given up. Placing a stage counts as 1, a simulated replica as
	// many placements as take about as long.
	Left int

	ask   int // asks Stop again at so much work left
	on    Devices
	lower Lower
	// micro and backward are the work of layers: all passes of a micro-batch, and its backward passes.
	micro, backward work
	twins           []int // by device: an earlier one of the pool that does the same wherever it is, -1 for none

	// Of the shape that is looked at now:
	shape   Shape
	known   map[string]replica[P]
	placed  []P
	last    int // device of the last stage of the first replica
	used    []bool
	devices []int // of the replica that is being placed
	ends    []int
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
	// stage's. The first stage begins when it is updated.
	fill, drain schedule.Nanos
	slowest     schedule.Nanos // forward pass, backward pass or transfer
	begin       schedule.Nanos // of this replica's first stage, after the commit
	passes      schedule.Nanos // of this replica, from the commit on
	bound       schedule.Nanos // of all else
}

// step bounds the step of a plan that begins so.
func (p prefix) step() schedule.Nanos { return max(p.passes, p.bound) }

// New begins a search on some devices, for a step shorter than a known one and with so much work.
func New[P any](on Devices, calls Calls[P], known schedule.Nanos, work int) *Search[P] {
	s := &Search[P]{Calls: calls, Step: known, Left: work, ask: work - askWork, on: on, lower: NewLower(on)}
	s.micro = newWork(on, func(t schedule.StageTime) schedule.Nanos { return t.Micro() })
	s.backward = newWork(on, func(t schedule.StageTime) schedule.Nanos { return t.Input + t.Weight })
	s.twins = on.Twins()
	return s
}

// Look goes through all plans of a shape that may be shorter than the best one.
func (s *Search[P]) Look(at Shape) {
	s.shape, s.known = at, map[string]replica[P]{}
	s.used, s.devices, s.ends, s.placed = make([]bool, len(s.on.Model.Devices)), nil, nil, nil
	s.place(prefix{bound: s.lower.exchange(at.Replicas, at.Stages)})
}

// placement is a stage with the prefix that ends there.
type placement struct {
	device, end int
	prefix
}

// place tries every device and range of layers for the next stage, the least bound first. Of like devices it takes the first one.
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
	var next []placement
	for _, d := range s.on.Pool {
		if twin := s.twins[d]; s.used[d] || twin >= 0 && !s.used[twin] {
			continue
		}
		from, most := first+1, m.Memory.Layers()-after
		if after == 0 {
			from = most
		}
		for end := from; end <= most && m.Fixed(d, first, end) <= m.Devices[d].FreeBytes; end++ {
			if s.spend(1); s.Left == 0 {
				return
			}
			s.put(d, end)
			if p := s.extend(before, first, end); p.step() < s.Step {
				next = append(next, placement{d, end, p})
			}
			s.take()
		}
	}
	slices.SortStableFunc(next, func(a, b placement) int { return cmp.Compare(a.step(), b.step()) })
	for _, p := range next {
		if s.Left == 0 || p.step() >= s.Step {
			return
		}
		s.put(p.device, p.end)
		s.place(p.prefix)
		s.take()
	}
}

// put places a stage, take takes the last one back.
func (s *Search[P]) put(device, end int) {
	s.used[device] = true
	s.devices, s.ends = append(s.devices, device), append(s.ends, end)
}

func (s *Search[P]) take() {
	last := len(s.devices) - 1
	s.used[s.devices[last]] = false
	s.devices, s.ends = s.devices[:last], s.ends[:last]
}

// extend returns a prefix with the stage that was placed last. In 1F1B three things hold of every stage:
//
//   - All its passes follow its first activation, and its last gradient passes all stages before it. Each sends a gradient on after its
//     whole backward pass.
//   - Its backward passes follow the round trip of the first micro-batch to the last stage, its forward passes are before that of the
//     last one.
//   - No transfer to or from it is at the same time as another one of that direction.
func (s *Search[P]) extend(p prefix, first, end int) prefix {
	i, m := len(s.devices)-1, s.shape.Model
	d, micros := s.devices[i], schedule.Nanos(s.shape.Micros[len(s.placed)])
	t := m.Devices[d].Time(first, end)
	backward := t.Input + t.Weight
	update := m.Update(d, first, end)
	if i == 0 {
		if p.begin = update; len(s.placed) > 0 {
			p.begin += s.way(d)
		}
		p.fill, p.drain = p.begin, 0
	}
	p.slowest = max(p.slowest, t.Forward, backward)
	if i > 0 {
		bytes := s.on.Bytes(m.Memory.Boundary(first - 1))
		forth, back := m.Link(s.devices[i-1], d).Hop(bytes), m.Link(d, s.devices[i-1]).Hop(bytes)
		p.fill, p.drain = p.fill+forth.Transfer+forth.Latency, p.drain+back.Transfer+back.Latency
		p.slowest = max(p.slowest, forth.Transfer, back.Transfer)
	}
	p.passes = max(p.passes, p.fill+micros*t.Micro()+p.drain)
	p.bound = max(p.bound, update+micros*t.Micro())
	// All that it sends to other replicas follows the last backward pass, or goes on beside that.
	p.bound = max(p.bound, max(p.fill, update)+micros*t.Micro()-backward+s.exchange(first, end))
	p.fill, p.drain = p.fill+t.Forward, p.drain+backward
	round, slowest := p.fill+p.drain, p.slowest
	if after := s.shape.Stages - i - 1; after > 0 {
		p.passes = max(p.passes, round+s.lower.hopSum[1]+micros*s.micro.least(end, after, s.used))
		round += s.micro.least(end, 1, s.used) + s.lower.hopSum[after]
		slowest = max(slowest, s.backward.least(end, after, s.used))
	}
	p.passes = max(p.passes, round+(micros-1)*slowest)
	return s.among(p, first, end)
}

// among returns a prefix with what the stage that was placed last has to do with other replicas, of which the next ones need devices
// too.
func (s *Search[P]) among(p prefix, first, end int) prefix {
	i, m, replicas := len(s.devices)-1, s.shape.Model, s.shape.Replicas
	after, more := s.shape.Stages-i-1, replicas-len(s.placed)-1
	if more > 0 {
		micros, devices := schedule.Nanos(slices.Min(s.shape.Micros[len(s.placed):])), more*s.shape.Stages
		p.bound = max(p.bound, micros*s.micro.leastOf(end, more, after+devices, s.used), micros*s.micro.leastOf(m.Memory.Layers(), more, devices, s.used))
	}
	switch {
	case len(s.placed) == 0 && after == 0:
		s.last = s.devices[i]
		p.begin, p.passes = p.begin+s.way(s.devices[0]), p.passes+s.way(s.devices[0])
	case len(s.placed) > 0:
		p.bound = max(p.bound, schedule.Nanos(s.shape.Micros[len(s.placed)])*m.Devices[s.devices[i]].Time(first, end).Micro()+m.Update(s.devices[i], first, end)+s.way(s.devices[i]))
	}
	return p
}

// exchange bounds the time that the stage which was placed last sends gradients and parameters to other replicas: summed ones
// follow its passes, updated ones do not where the replicas have the optimizer state in parts.
func (s *Search[P]) exchange(first, end int) schedule.Nanos {
	m, replicas := s.shape.Model, int64(s.shape.Replicas)
	if replicas == 1 || s.on.Apart {
		return 0
	}
	sent := m.Memory.Params(first, end)/replicas*(replicas-1) - int64(end-first)*(replicas-1)       // messages are rounded down
	took := max(0, min(cost.Duration(sent, s.best(s.devices[len(s.devices)-1])), cost.Longest/2)-1) // within a node it takes no time
	if len(m.Memory.Parts().Layers) > 0 {
		return took
	}
	return 2 * took
}

// way returns the time from a device to the last one of the first replica and back: it decides on the commit.
func (s *Search[P]) way(d int) schedule.Nanos {
	if s.on.Apart && len(s.placed) > 0 { // of another replica, which waits for nobody's commit but its own
		return 0
	}
	m := s.shape.Model
	return m.Link(d, s.last).Hop(0).Latency + m.Link(s.last, d).Hop(0).Latency
}

// best returns the rate of a device's quickest line to one that is not of the replica that is being placed.
func (s *Search[P]) best(d int) (rate int64) {
	for _, v := range s.on.Pool {
		if !slices.Contains(s.devices, v) {
			rate = max(rate, s.shape.Model.Link(d, v).BytesPerS)
		}
	}
	return rate
}

// finish goes on with the next replica, or times the plan.
func (s *Search[P]) finish(before prefix) {
	r := s.cut()
	before.passes = max(before.passes, before.begin+r.passes)
	if !r.fits || before.step() >= s.Step {
		return
	}
	s.placed = append(s.placed, r.pipe)
	defer func() { s.placed = s.placed[:len(s.placed)-1] }()
	if len(s.placed) < s.shape.Replicas {
		devices, ends := s.devices, s.ends
		s.devices, s.ends = nil, nil
		s.place(prefix{bound: before.step()})
		s.devices, s.ends = devices, ends
		return
	}
	for r := range s.placed {
		s.simulating(r)
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
		s.simulating(len(s.placed))
		pipe, passes, err := s.Cut(s.shape.Model, slices.Clone(s.devices), slices.Clone(s.ends), micros)
		if err == nil {
			r = replica[P]{pipe, passes, true}
		}
		s.known[key] = r
	}
	return r
}

// simulating takes off the work of simulating a replica.
func (s *Search[P]) simulating(replica int) {
	s.spend(simulateWork + s.shape.Micros[replica]*s.shape.Stages/4)
}

// spend takes off work. Now and then it asks whether to give up.
func (s *Search[P]) spend(work int) {
	if s.Left = max(0, s.Left-work); s.Left > s.ask {
		return
	}
	if s.ask = s.Left - askWork; s.Stop() {
		s.Left = 0
	}
}

// keyOf returns numbers as a value that can be a key.
func keyOf(numbers []int) string {
	var b []byte
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return string(b)
}
