package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// StageOrder is the order of one stage's passes over all its micro-batches: F, I and W, each taking the next
// micro-batch of its own count. `FFIWIW` is two forwards, then two input gradients with their weight gradients.
type StageOrder string

// orderOps are the letters of a StageOrder, orderedOps what they stand for.
const orderOps = "FIW"

var orderedOps = []Op{Forward, BackwardInput, BackwardWeight}

// check returns an error unless the order has each pass of so many micro-batches once, in a possible order.
func (o StageOrder) check(micros int) error {
	var forward, input, weight int
	for at, letter := range o {
		switch letter {
		case 'F':
			forward++
		case 'I':
			input++
		case 'W':
			weight++
		default:
			return badOrder(o, "letters of "+orderOps)
		}
		if input > forward || weight > input {
			return badOrder(o, fmt.Sprintf("a forward before each I and an I before each W, letter %d is too early", at))
		}
	}
	if forward != micros || input != micros || weight != micros {
		return badOrder(o, fmt.Sprintf("%d of each letter", micros))
	}
	return nil
}

func badOrder(o StageOrder, want string) error {
	return fmt.Errorf("%w: the order of a stage is %.60q, want %s", ErrBadShape, string(o), want)
}

// Ordered is split backwards with given orders, one for each stage.
func Ordered(s Shape, orders []StageOrder) (Schedule, error) {
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	if len(orders) != s.Stages {
		return Schedule{}, fmt.Errorf("%w: %d orders for %d stages", ErrBadShape, len(orders), s.Stages)
	}
	out := Schedule{Workers: make([][]Action, s.Stages)}
	for r, order := range orders {
		if err := order.check(s.Micros); err != nil {
			return Schedule{}, fmt.Errorf("stage %d: %w", r, err)
		}
		p := program{shape: s, actions: make([]Action, 0, len(order))}
		var count [len(orderOps)]int
		for _, letter := range order {
			op := strings.IndexRune(orderOps, letter)
			p.put(orderedOps[op], r, count[op])
			count[op]++
		}
		out.Workers[r] = p.actions
	}
	return out, nil
}

// Orders returns by worker the order of its forwards, input and weight gradients, as Ordered takes it; a whole backward is
// both.
func (s Schedule) Orders() []StageOrder {
	orders := make([]StageOrder, len(s.Workers))
	for w, actions := range s.Workers {
		var order []byte
		for _, a := range actions {
			if a.Op == Backward {
				order = append(order, "IW"...)
			} else if at := slices.Index(orderedOps, a.Op); at >= 0 {
				order = append(order, orderOps[at])
			}
		}
		orders[w] = StageOrder(order)
	}
	return orders
}

// MaxOrdered bounds stages times micro-batches of orders: their text has to fit a Spec.
const MaxOrdered = 320

// usualWidth is the width of ZBElastic's search.
const usualWidth = 64

// ZBElastic is the elastic schedule with split backwards: of all orders within the caps those that end first under
// the costs, as far as Split finds them. Without costs all passes take as long and messages no time.
func ZBElastic(o Options) (Schedule, error) {
	if err := o.check(); err != nil {
		return Schedule{}, err
	}
	if o.Orders != nil {
		return Ordered(o.Shape, o.Orders)
	}
	orders, err := o.split().Choose()
	if err != nil {
		return Schedule{}, err
	}
	return Ordered(o.Shape, orders.Stages)
}

// split returns the problem of the options.
func (o Options) split() Split {
	p := Split{Costs: o.Costs, Micros: o.Micros, Caps: o.Caps, Width: usualWidth}
	if p.Costs.Stages == nil {
		p.Costs.Stages = slices.Repeat([]StageTime{{Forward: 1, Input: 1, Weight: 1}}, o.Stages)
		p.Costs.Boundaries = make([]Boundary, max(o.Stages-1, 0))
	}
	return p
}
