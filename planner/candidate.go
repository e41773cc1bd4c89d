package planner

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/layout"
	"pnode/planner/partition"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// candidate is a plan under consideration.
type candidate struct {
	shape  shape
	pipes  []*pipe
	shares []int
	// layout is there where the schedule's programs say what is kept and how long they take.
	layout *layout.Layout
	// kept: it is the previous plan's cut.
	kept bool
	// groups is there where the candidate has another schedule than the run asks for.
	groups *grouping
	// sharded are the layers whose optimizer state the replicas hold in parts.
	sharded plan.LayerRanges
	// away are the units that keep their optimizer state in host memory; nil for none.
	away []bool

	job      sim.Job
	estimate schedule.Nanos
	// result is there once the candidate has been simulated.
	result    sim.Result
	simulated bool
	movedByte int64
}

// step is the best knowledge of the step's time.
func (k *candidate) step() schedule.Nanos {
	if k.simulated {
		return k.result.Step
	}
	return k.estimate
}

// order lists the units, replica by replica.
func (k *candidate) order() []int {
	var all []int
	for _, p := range k.pipes {
		all = append(all, p.units...)
	}
	return all
}

// estimate fills in what follows from the pipes. Errors wrap ErrNoFit or ErrBadPlan.
func (c *cluster) estimate(k *candidate) error {
	if k.shares == nil {
		k.shares = partition.Shares(c.in.Run.Train.Micros, c.rates(k))
	}
	if !c.order.elastic() && k.layout == nil {
		if err := c.arrangeLayout(k); err != nil {
			return err
		}
	}
	k.estimate, k.job = 0, sim.Job{}
	if k.layout != nil {
		k.job.Pipelines = []sim.Pipeline{{End: k.layout.End}}
	} else {
		for r, p := range k.pipes {
			k.job.Pipelines = append(k.job.Pipelines, p.simulated(k.shares[r]))
		}
	}
	for _, p := range k.job.Pipelines {
		k.estimate = max(k.estimate, p.Estimate())
	}
	rows := k.rows()
	k.job.Reduce, k.job.Tied, k.job.Commit = 2*c.site.Exchange(rows, c.books().All()), c.site.Tied(rows, 4*int64(c.in.Run.Model.TiedGradLen())), c.site.Commit(rows)
	k.job.Update = c.site.Updates(rows, k.measuredUpdate)
	k.job.Gather = c.site.Exchange(rows, k.sharded) // in place of that much of the reduction
	k.job.Reduce -= min(k.job.Gather, k.job.Reduce)
	k.estimate += k.job.Tail()
	k.movedByte = c.movedBytes(rows)
	return nil
}

// rows are by replica and stage where the stages are.
func (k *candidate) rows() layout.Rows {
	if k.layout != nil {
		return k.layout.Rows
	}
	rows := make(layout.Rows, len(k.pipes))
	for r, p := range k.pipes {
		for s, u := range p.units {
			first, end := p.layers(s)
			rows[r] = append(rows[r], layout.Cell{Unit: u, First: first, End: end})
		}
	}
	return rows
}

// measuredUpdate is what a stage's update takes where that is not as reckoned from its layers.
func (k *candidate) measuredUpdate(at layout.At) (schedule.Nanos, bool) {
	if k.layout == nil {
		return k.pipes[at.Replica].Costs.Stages[at.Stage].Update, true
	}
	seen := k.layout.Cell(at).Seen
	if seen == nil || seen.Update <= 0 {
		return 0, false
	}
	return seen.Update, true
}

// rates are what the replicas' shares are in proportion to: measured speeds, or all the same.
func (c *cluster) rates(k *candidate) []partition.Rate {
	rates := make([]partition.Rate, len(k.pipes))
	for r, p := range k.pipes {
		rates[r] = partition.Rate{Each: 1}
		if c.in.Run.Train.UnevenShares {
			rates[r] = partition.Rate{First: p.Costs.RoundTrip(), Each: p.Period}
		}
	}
	return rates
}

// simulate replaces the estimate.
func (k *candidate) simulate() error {
	result, err := sim.Run(k.job)
	k.result, k.simulated = result, err == nil
	return err
}

// noFit puts names to a partition's refusal.
func (c *cluster) noFit(units []int, err error) error {
	var no *partition.NoFit
	if !errors.As(err, &no) {
		return err
	}
	u := c.units[units[no.Device]]
	if no.Beside {
		return fmt.Errorf("%w: %s", ErrNoFit, u.hostText(fmt.Sprintf("layers [%d,%d)", no.First, no.End), no.NeedBytes))
	}
	// What passes take has been taken off what is free.
	need, free := no.NeedBytes+c.ledger(units[no.Device]).Pass(), no.FreeBytes+u.profile.MemoryFreeBytes-u.FreeBytes
	return fmt.Errorf("%w: device %s of %s would need %s for layers [%d,%d), %s are free; add a node, allow more with --memory, use more stages, a smaller model or a smaller micro-batch",
		ErrNoFit, u.device, u.node, plan.Size(need), no.First, no.End, plan.Size(free))
}

// hostText says that a node lacks memory for the optimizer state of something.
func (u unit) hostText(of string, need int64) string {
	return fmt.Sprintf("%s of %s would keep the optimizer state of %s in the memory of its node, %s, where %s are free; add a node, or free memory there",
		u.device, u.node, of, plan.Size(need), plan.Size(u.HostBytes))
}

// movedBytes is how many parameters units hold that their node does not hold under the
// previous plan.
func (c *cluster) movedBytes(rows layout.Rows) int64 {
	if c.held == nil {
		return 0
	}
	moved := int64(0)
	for _, row := range rows {
		for _, k := range row {
			for l := k.First; l < k.End; l++ {
				if !c.held[peerLayer{c.units[k.Unit].peer, l}] {
					moved += c.books().Params(l, l+1)
				}
			}
		}
	}
	return moved
}

type peerLayer struct {
	peer  plan.PeerID
	layer int
}

// heldLayers is what the nodes hold under the previous plan; nil without one.
func heldLayers(previous *plan.Plan) map[peerLayer]bool {
	if previous == nil {
		return nil
	}
	held := map[peerLayer]bool{}
	for _, pipe := range previous.Replicas {
		for _, pl := range pipe.Stages {
			for l := pl.Layers.First; l < min(pl.Layers.End, maxLayers); l++ {
				held[peerLayer{pl.Peer, l}] = true
			}
		}
	}
	return held
}

// recomputes tells whether anything is computed again.
func (k *candidate) recomputes() bool {
	if k.layout == nil {
		return slices.ContainsFunc(k.pipes, (*pipe).recomputes)
	}
	return k.layout.Rows.Recompute()
}

// tight tells whether memory or latency keeps a replica from its best period.
func (k *candidate) tight() bool {
	return slices.ContainsFunc(k.pipes, func(p *pipe) bool { return p.Period > p.Costs.Floor() })
}
