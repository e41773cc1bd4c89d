package schedule

import "fmt"

// Shape sizes a generator's schedule: one replica's pipeline and its contiguous
// share of the step's micro-batches.
type Shape struct {
	Replica Replica
	// Stages are all parts of the model: workers x stages per worker.
	Stages     int
	FirstMicro Micro
	// Micros of the step. Chimera divides them among its pipelines.
	Micros int
}

func (s Shape) check() error {
	if s.Stages < 1 || s.Micros < 1 || s.Replica < 0 || s.FirstMicro < 0 ||
		s.Stages > MaxWorkers || s.Micros > MaxNumber || s.Replica > MaxNumber || s.FirstMicro > MaxNumber {
		return fmt.Errorf("%w: replica %d with %d stages and micro-batches %d+%d: stages are 1 to %d, micro-batches at least 1, numbers at most %d",
			ErrBadShape, s.Replica, s.Stages, s.FirstMicro, s.Micros, MaxWorkers, MaxNumber)
	}
	return nil
}

// Options are the integers of all generators. A generator reads those that its Kind says
// it needs; 0 and nil are the default of that kind.
type Options struct {
	Shape
	// Shares are by pipeline Chimera's parts of the micro-batches; nil are equal ones.
	Shares []Share
	// Warmups are 1F1B's, by stage; nil are the ordinary ones.
	Warmups []int
	// Forward and Backward (f, b) are unequal groups of interleaving; each sums to Micros.
	Forward, Backward []int
	// Chunks (v) are stages per worker. Hanayo has two a wave.
	Chunks int
	// Depth (d) is warm-up forwards per following worker.
	Depth int
	// Group (k) is how many micro-batches go together: kFkB's k, equal groups of
	// interleaving, weight gradients of one batch of 2BP.
	Group int
	// Pairs of pipelines of Chimera.
	Pairs int
	// Orders (order) are by stage those of ZBElastic; nil are found by Costs and Caps.
	Orders []StageOrder
	// Segments (n) of a sequence of Seq1F1B.
	Segments int
	// Costs and Caps are the elastic schedules': Caps by worker in micro-batches, nil for
	// no limit.
	Costs Costs
	Caps  []int
}

// orderParam names the option that has orders for numbers.
const orderParam = "order"

// named is the option with that name in a Spec, of one number or of several; nil for orders.
func (o *Options) named(name string) (one *int, several *[]int) {
	switch name {
	case "v":
		return &o.Chunks, nil
	case "d":
		return &o.Depth, nil
	case "k":
		return &o.Group, nil
	case "pairs":
		return &o.Pairs, nil
	case "n":
		return &o.Segments, nil
	case "f":
		return nil, &o.Forward
	case "b":
		return nil, &o.Backward
	case orderParam:
		return nil, nil
	}
	panic("schedule: no option is called " + name)
}

// workers is how many workers there are when each holds that many stages.
func (o Options) workers(chunks int) (int, error) {
	if err := o.check(); err != nil {
		return 0, err
	}
	if chunks < 1 || o.Stages%chunks != 0 {
		return 0, fmt.Errorf("%w: %d stages do not divide by %d chunks a worker", ErrBadShape, o.Stages, chunks)
	}
	return o.Stages / chunks, nil
}

// orDefault is a number unless it is 0.
func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// atLeastOne refuses a field that is below 1.
func atLeastOne(field string, n int) error {
	if n < 1 || n > MaxNumber {
		return badField(field, n, fmt.Sprintf("1 to %d", MaxNumber))
	}
	return nil
}

func badField(field string, n int, want string) error {
	return fmt.Errorf("%w: %s is %d, want %s", ErrBadShape, field, n, want)
}

// program is a worker's list while it is made.
type program struct {
	shape   Shape
	actions []Action
}

func (p *program) put(op Op, stage, i int) {
	p.actions = append(p.actions, Action{Op: op, Replica: p.shape.Replica, Stage: Stage(stage), Micro: p.shape.FirstMicro + Micro(i)})
}
