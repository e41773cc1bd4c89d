package schedule

import (
	"fmt"
	"slices"
)

// Chimera runs pairs of pipelines in opposite directions over the same workers (Li and
// Hoefler, Chimera, SC 2021): pipeline 2i has stage s on worker s + i*stages/pairs, 2i+1
// on worker i*stages/pairs - 1 - s, modulo stages. Each pipeline is a replica with an
// equal share of the micro-batches; replica numbers begin at Shape.Replica. A unit of as
// many micro-batches as stages has each pipeline inject one every second slot, and units
// fit into each other without a collision: more micro-batches are direct concatenation.
// Pairs divide half the stages, which must be even.
func Chimera(o Options) (Schedule, error) {
	return o.chimera(1)
}

// ChimeraDoubled computes the forwards of two micro-batches in one slot and their
// backwards in one each, which closes the bubbles between units when a backward takes
// twice a forward (section 3.5 of the paper). It is forward doubling when micro-batches
// stay as large, with twice the activations, and backward halving when they are half as
// large and twice as many.
func ChimeraDoubled(o Options) (Schedule, error) {
	return o.chimera(2)
}

// slotted is an action at its place in the plan of equal slots.
type slotted struct {
	slot   int
	action Action
}

func (o Options) chimera(together int) (Schedule, error) {
	p, err := o.workers(1)
	if err != nil {
		return Schedule{}, err
	}
	pairs := orDefault(o.Pairs, 1)
	if pairs < 1 || p%2 != 0 || p/2%pairs != 0 {
		return Schedule{}, fmt.Errorf("%w: %d pairs of pipelines over %d stages: stages must be even, and half of them a multiple of pairs",
			ErrBadShape, pairs, p)
	}
	shares, err := o.shares(2 * pairs)
	if err != nil {
		return Schedule{}, err
	}
	places := make([][]slotted, p)
	for pipe, share := range shares {
		line := program{shape: Shape{Replica: o.Replica + Replica(pipe), Stages: p, FirstMicro: share.First, Micros: share.Micros}}
		line.slots(places, pipe, p/(2*pairs), pipe/2*(p/pairs), together)
	}
	out := Schedule{Workers: make([][]Action, p)}
	for w, list := range places {
		slices.SortStableFunc(list, func(a, b slotted) int { return a.slot - b.slot })
		for _, s := range list {
			out.Workers[w] = append(out.Workers[w], s.action)
		}
	}
	return out, nil
}

// shares are the given ones, or n of the micro-batches that differ by one at most.
func (o Options) shares(n int) ([]Share, error) {
	if o.Micros < n {
		return nil, badField("micros", o.Micros, fmt.Sprintf("at least one for each of %d pipelines", n))
	}
	if o.Shares != nil {
		if len(o.Shares) != n {
			return nil, fmt.Errorf("%w: shares of %d pipelines, there are %d", ErrBadShape, len(o.Shares), n)
		}
		for _, share := range o.Shares {
			if err := (Shape{Replica: o.Replica, Stages: o.Stages, FirstMicro: share.First, Micros: share.Micros}).check(); err != nil {
				return nil, err
			}
		}
		return o.Shares, nil
	}
	equal := make([]Share, n)
	first := o.FirstMicro
	for i := range equal {
		equal[i] = Share{First: first, Micros: (o.Micros + n - 1 - i) / n}
		first += Micro(equal[i].Micros)
	}
	return equal, nil
}

// slots puts one pipeline's actions in their places. Its first stage is on worker turn,
// or turn-1 with the stages that follow on the workers before. A unit has q forward slots
// a pipeline: at 2j + stage in the unit, and a backward of that stage as many slots after
// the turning point as forwards came before it.
func (p *program) slots(places [][]slotted, pipe, q, turn, together int) {
	stages := p.shape.Stages
	unit := stages * (1 + together)
	for m := range p.shape.Micros {
		forward := m / together % q
		backward := m % (q * together)
		start := m / (q * together) * unit
		for s := range stages {
			w := (turn + s) % stages
			if pipe%2 == 1 {
				w = (turn - 1 - s + 2*stages) % stages
			}
			at := func(op Op, slot int) {
				a := Action{Op: op, Replica: p.shape.Replica, Stage: Stage(s), Micro: p.shape.FirstMicro + Micro(m)}
				places[w] = append(places[w], slotted{start + slot, a})
			}
			at(Forward, s+2*forward)
			at(Backward, 2*stages-1-s+2*backward)
		}
	}
}
