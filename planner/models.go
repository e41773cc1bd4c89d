package planner

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// costModels has the cost models of one precision, by sharding and offload. The first has all
// optimizer state whole and on its devices.
type costModels struct{ all []*cost.Model }

func (c *costModels) whole() *cost.Model { return c.all[0] }

// with returns the model in which replicas hold the optimizer state of layers in parts, and devices
// offload theirs.
func (c *costModels) with(p cost.Parts, offload []bool) *cost.Model {
	if p.Replicas <= 1 || len(p.Layers) == 0 {
		p = cost.Parts{Partials: p.Partials, Exchanged: p.Exchanged, Outer: p.Outer, Undo: p.Undo}
	}
	if !slices.Contains(offload, true) {
		offload = nil
	}
	for _, m := range c.all {
		if has := m.Memory.Parts(); has.Replicas == p.Replicas && has.Partials == p.Partials && has.Exchanged == p.Exchanged && has.Outer == p.Outer && has.Undo == p.Undo && slices.Equal(has.Layers, p.Layers) && slices.Equal(m.Offload, offload) {
			return m
		}
	}
	c.all = append(c.all, c.whole().With(p, offload))
	return c.all[len(c.all)-1]
}

// of returns the model with the optimizer state where a plan has it.
func (c *costModels) of(p *problem, has plan.Plan) *cost.Model {
	offload := make([]bool, len(p.devices))
	for _, pipe := range has.Replicas {
		for _, place := range pipe.Stages {
			if d := p.find(place.Worker()); place.Offload && d >= 0 {
				offload[d] = true
			}
		}
	}
	parts := p.parts(len(has.Replicas), partialsOf(p.in.Run.Train.Sums(), has))
	parts.Layers, parts.Undo = has.Sharded, has.PostValidation
	return c.with(parts, offload)
}

// costModel returns the cost model of the devices in a storage, with all optimizer state on them.
// Errors wrap plan.ErrBadInput.
func (p *problem) costModel(as model.Storage) (*cost.Model, error) {
	run := p.in.Run
	t := cost.Training{
		Costs: p.in.Costs, HalfCosts: p.in.HalfCosts, NodeBytes: p.in.NodeBytes,
		Token: int64(run.Model.Channels), Tied: run.Model.TiedLen(), TiedGrad: run.Model.TiedGradLen(),
		Scratch: 4 * int64(run.Scratch(plan.LayerRange{End: p.layers()})),
	}
	if run.Train.Optimizer == plan.Muon {
		t.ShareBytes = shareBytes(run)
	}
	t.Level, t.Fixed = run.Train.Recompute.Level()
	if run.Train.DocumentMask {
		t.MaskBytes = 4 * int64(run.Train.MicroBatch) * int64(run.Model.Context)
	}
	m := cost.NewModel(cost.NewMemory(t), p.link)
	for _, d := range p.devices {
		device, err := m.Memory.NewDevice(d.profile, as)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", plan.ErrBadInput, err)
		}
		m.Devices = append(m.Devices, device)
	}
	if run.Model.Validate() == nil && run.Model.Layers() == p.layers() {
		m.Stack = func(at cost.Stage, slots int) (model.Memory, error) {
			place := plan.Placement{
				Layers: plan.LayerRange{First: at.First, End: at.End}, Recompute: plan.JoinLevels(at.Levels), Ahead: at.Ahead, Offload: at.Offload,
				Storage: m.Devices[at.Device].Storage,
			}
			return run.Stack(place, at.Shares, at.Partials, schedule.Use{Slots: slots, Split: at.Use.Split}).Memory()
		}
	}
	return m, nil
}

// parts returns what so many replicas keep with their optimizer state whole.
func (p *problem) parts(replicas, partials int) cost.Parts {
	return cost.Parts{Replicas: replicas, Partials: partials, Exchanged: p.exchanged(replicas), Outer: p.outerPerParam(replicas)}
}

// outerPerParam returns the bytes of a node's memory that outer steps of so many replicas take for each parameter. The planner chooses no codec of more bits
// than int8's.
func (p *problem) outerPerParam(replicas int) int64 {
	if !p.apart || replicas <= 1 {
		return 0
	}
	const some = 8000 // elements, so that bits are whole bytes
	rule := p.in.Run.Train.Sync
	return cost.OuterPerParam(replicas, (plan.OuterBytes(cmp.Or(rule.Codec, "int8"), some)+some-1)/some, !rule.AtOnce)
}

// shard returns the rule for the optimizer state of replicas. Those with local steps have none in common.
func (p *problem) shard() plan.ShardRule {
	if p.apart {
		return plan.ShardOff
	}
	return p.in.Run.Train.Shard
}

// shareBytes returns a run's ShareBytes that computes what blocks have once for all of them.
func shareBytes(run plan.RunSpec) func(layer, replicas int) int64 {
	known, last := map[[2]int]int64{}, run.Model.Layers()-1
	return func(layer, replicas int) int64 {
		if 0 < layer && layer < last {
			layer = 1
		}
		at := [2]int{layer, replicas}
		if _, ok := known[at]; !ok {
			known[at] = run.ShareBytes(layer, replicas)
		}
		return known[at]
	}
}

// exchanged returns how many vectors of gradients a stage exchanges at most where so many replicas have even shares of a step: sums of
// subtrees that only other replicas complete. It is 0 for one replica.
func (p *problem) exchanged(replicas int) (most int) {
	sums := p.in.Run.Train.Sums()
	if replicas <= 1 || replicas > sums.Groups || p.apart {
		return 0
	}
	for _, share := range sums.Even(replicas, sums.Groups) {
		most = max(most, len(sums.Subtrees(share)))
	}
	return most
}
