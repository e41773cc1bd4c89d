package planner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/cost"
)

// Sentinel errors of Make and Predict, beside ErrBadPlan.
var (
	// ErrBadInput is wrapped by errors about input that no nodes could make up for.
	ErrBadInput = errors.New("planner: bad input")
	// ErrNotEnoughNodes is wrapped when more devices are asked for than there are.
	ErrNotEnoughNodes = errors.New("planner: not enough nodes")
	// ErrNoFit is wrapped when the model does not fit into the devices' memory.
	ErrNoFit = errors.New("planner: model does not fit")
)

// Member is a node that may be planned with.
type Member struct {
	Peer    PeerID
	Profile Profile
	// Draining members are about to leave: they get neither a stage nor a copy.
	Draining bool
}

// Input is all that a plan depends on. The order of the members does not matter.
type Input struct {
	Run RunSpec
	// Costs are the model's layers for one micro-batch in float32 storage, HalfCosts in BF16 or F16
	// storage, which cost the same; nil where the run has neither.
	Costs, HalfCosts []model.LayerCost
	// NodeBytes is what a node's process takes of the memory besides its stages.
	NodeBytes  int64
	Members    []Member
	Start      Step
	Generation Generation
	// Links are what steps that were run showed of links, newer than the members' profiles.
	Links []LinkSeen
	// Previous is the plan in force, nil for none: of nearly equal plans the one that
	// moves the least state from it is taken.
	Previous *Plan
}

// Bounds of what is planned.
const (
	maxLayers  = 4096
	maxMembers = 4096
	maxMicros  = 1 << 20
	// ScheduleName is the schedule of plans of runs that ask for none, unless groups end sooner.
	ScheduleName = "1f1b"
)

// Make gives the plan with the least predicted step time, with reasons. Errors wrap
// ErrBadInput, ErrNotEnoughNodes, ErrNoFit or ErrTooLong.
func Make(in Input) (Plan, Reasons, error) {
	c, best, others, err := decide(in)
	if err != nil {
		return Plan{}, nil, err
	}
	plan, err := c.of(best).whole.plan(best)
	if err != nil {
		return Plan{}, nil, err
	}
	if err := plan.Validate(c.layers(), in.Run.Train.Micros); err != nil {
		return Plan{}, nil, fmt.Errorf("planner: make generation %d: %w", in.Generation, err)
	}
	return plan, c.of(best).whole.explain(best, others), nil
}

// decide is Make up to the chosen candidate; others are the rest that were looked at.
func decide(in Input) (c *cluster, best *candidate, others []*candidate, err error) {
	if err := in.check(); err != nil {
		return nil, nil, nil, err
	}
	for _, store := range in.storings() {
		var fail error
		if c, best, others, fail = decideFor(in, store); !errors.Is(fail, ErrNoFit) {
			return c, best, others, fail
		}
		err = cmp.Or(err, fail) // the first says what is best
	}
	return nil, nil, nil, err
}

// decideFor is decide for one way to store.
func decideFor(in Input, store storing) (c *cluster, best *candidate, others []*candidate, err error) {
	if c, err = newCluster(in, store); err != nil {
		return nil, nil, nil, err
	}
	found, err := c.search()
	if err != nil {
		return nil, nil, nil, err
	}
	if found, err = c.settle(found); err != nil {
		return nil, nil, nil, err
	}
	best, others = c.choose(c.group(found))
	best = c.of(best).trimSharing(best)
	best = c.of(best).trimOffload(best)
	if err := c.of(best).widen(best); err != nil {
		return nil, nil, nil, fmt.Errorf("planner: codecs of %v: %w", best.shape, err)
	}
	return c, best, others, nil
}

func (in Input) check() error {
	t := in.Run.Train
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: generation %d: %s", ErrBadInput, in.Generation, fmt.Sprintf(format, args...))
	}
	switch layers := len(in.Costs); {
	case in.Generation == 0:
		return bad("generations count from 1")
	case layers < 1 || layers > maxLayers:
		return bad("a model of %d layers, want 1 to %d", layers, maxLayers)
	case len(in.Members) > maxMembers:
		return bad("%d members, at most %d are planned", len(in.Members), maxMembers)
	case t.Micros < 1 || t.Micros > maxMicros:
		return bad("%d micro-batches a step, want 1 to %d", t.Micros, maxMicros)
	case t.Replicas < 0 || t.Stages < 0:
		return bad("%d replicas x %d stages, want 0 (auto) or more", t.Replicas, t.Stages)
	case t.Replicas > t.Micros:
		return bad("%s for %d replicas: each replica needs at least one; raise the micro-batches or lower the replicas", Count(t.Micros, "micro-batch"), t.Replicas)
	case t.Stages > layers:
		return bad("%d stages for %d layers: each stage needs at least one; lower the stages", t.Stages, layers)
	}
	if n := len(in.HalfCosts); n != len(in.Costs) && (n > 0 || in.Run.Train.Storage.always(model.StorageBF16, model.StorageF16)) {
		return bad("costs of %d layers in halves, want %d", n, len(in.Costs))
	}
	for _, costs := range [][]model.LayerCost{in.Costs, in.HalfCosts} {
		for l, k := range costs {
			if why := checkCost(k); why != "" {
				return bad("layer %d %s", l, why)
			}
		}
	}
	return nil
}

// checkCost says what is wrong about a layer's cost, empty for nothing.
func checkCost(k model.LayerCost) string {
	const most = 1 << 48 // bytes of a layer; sums over maxLayers stay within 60 bits
	if min(k.ForwardFLOPs, k.InputFLOPs, k.WeightFLOPs, k.ParamBytes, k.ParamBytes-k.FrozenBytes, k.FrozenBytes, k.CopyBytes, k.SavedBytes, k.BoundaryBytes, k.PassBytes-k.PassHalfBytes, k.PassHalfBytes, k.TableBytes) < 0 ||
		max(k.ParamBytes, k.CopyBytes, k.SavedBytes, k.BoundaryBytes, k.PassBytes, k.TableBytes) > most {
		return fmt.Sprintf("costs %+v, want 0 or more, and at most %d bytes", k, int64(most))
	}
	for level, lean := range k.Lean {
		if min(lean.SavedBytes, lean.PassBytes, lean.RecomputeFLOPs) < 0 || lean.SavedBytes > k.SavedBytes || lean.PassBytes > most {
			return fmt.Sprintf("costs %+v when it recomputes %v, want 0 or more, and at most what it saves otherwise, %d bytes", lean, model.Recompute(level), k.SavedBytes)
		}
	}
	return ""
}

// plan writes a candidate down.
func (c *cluster) plan(k *candidate) (Plan, error) {
	p, err := c.skeleton(k)
	if err != nil {
		return Plan{}, err
	}
	_, fixed := c.in.Run.Train.Recompute.Level()
	for r, pipe := range p.Replicas {
		for s := range pipe.Stages {
			place := &pipe.Stages[s]
			if c.in.Run.Train.Storage.auto {
				place.Storage = c.units[c.find(place.Peer, place.Device)].storage
			}
			levels, ahead, codec := k.chosen(r, s)
			if !fixed {
				place.Recompute = JoinLevels(levels)
			}
			if s < len(pipe.Stages)-1 {
				place.Codec = codec.String()
				place.Ahead = ahead
			}
		}
	}
	c.assignHolders(&p)
	return p, nil
}

// chosen is what a stage of a candidate computes again, how many of its last layers ahead of
// the gradient, and how it sends to the next one.
func (k *candidate) chosen(replica, stage int) (levels []model.Recompute, ahead int, codec cost.Codec) {
	if k.layout != nil {
		if codecs := k.layout.codecs[replica]; stage < len(codecs) {
			codec = codecs[stage]
		}
		at := k.layout.rows[replica][stage]
		return at.levels, at.ahead, codec
	}
	p := k.pipes[replica]
	if stage < len(p.Codecs) {
		codec = p.Codecs[stage]
	}
	return p.Recompute[stage], p.Ahead[stage], codec
}

// skeleton has a candidate's stages where they are: pipes become lanes, on which the schedule
// places them.
func (c *cluster) skeleton(k *candidate) (Plan, error) {
	p := Plan{Run: c.in.Run.Run, Generation: c.in.Generation, Start: c.in.Start, Schedule: c.order.spec.String(), Sharded: k.sharded}
	micro := Micro(0)
	for r, pipe := range k.pipes {
		pipes, err := c.order.pipelines(c.lane(pipe, micro, k.shares[r]), Replica(len(p.Replicas)))
		if err != nil {
			return Plan{}, fmt.Errorf("planner: make generation %d: %w", c.in.Generation, err)
		}
		p.Replicas = append(p.Replicas, pipes...)
		micro += Micro(k.shares[r])
	}
	for _, pipe := range p.Replicas {
		for s := range pipe.Stages {
			place := &pipe.Stages[s]
			place.Offload = k.away != nil && k.away[c.find(place.Peer, place.Device)]
		}
	}
	return p, nil
}

// lane is a pipe's units in order, with a share of the micro-batches.
func (c *cluster) lane(pipe *pipe, first Micro, micros int) Lane {
	l := Lane{First: first, Micros: micros}
	for s, u := range pipe.units {
		from, end := pipe.layers(s)
		l.Seats = append(l.Seats, Seat{c.units[u].peer, c.units[u].device})
		l.Layers = append(l.Layers, end-from)
	}
	if slices.Contains(warmUps, c.order.spec.String()) {
		for _, w := range pipe.Warmups {
			l.Warmups = append(l.Warmups, min(w, micros/c.order.copies-1))
		}
	}
	return l
}
