package planner

import (
	"errors"
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/partition"
	"pnode/planner/sim"
)

// shape is how many replicas of how many stages.
type shape struct{ replicas, stages int }

func (s shape) units() int { return s.replicas * s.stages }

func (s shape) String() string {
	return fmt.Sprintf("%s x %s", Count(s.replicas, "replica"), Count(s.stages, "stage"))
}

// candidate is a plan under consideration.
type candidate struct {
	shape  shape
	pipes  []*pipe
	shares []int
	// layout is there where the schedule's programs say what is kept and how long they take.
	layout *layout
	// kept: it is the previous plan's cut.
	kept bool
	// groups is there where the candidate has another schedule than the run asks for.
	groups *grouping
	// sharded are the layers whose optimizer state the replicas hold in parts.
	sharded []LayerRange
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

// arrangeAs makes a candidate of units in order: the first stages are replica 0.
func (c *cluster) arrangeAs(s shape, order []int) (*candidate, error) {
	k := &candidate{shape: s, pipes: make([]*pipe, s.replicas), sharded: c.parts.layers, away: c.away}
	micros := (c.in.Run.Train.Micros + s.replicas - 1) / s.replicas
	for r := range k.pipes {
		units := order[r*s.stages : (r+1)*s.stages]
		p, err := c.cut(units, micros)
		if err == nil {
			p, err = c.deepened(p)
		}
		if err != nil {
			return nil, c.noFit(units, err)
		}
		k.pipes[r] = p
	}
	return k, c.estimate(k)
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
		k.job.Pipelines = []sim.Pipeline{{End: k.layout.end}}
	} else {
		for r, p := range k.pipes {
			k.job.Pipelines = append(k.job.Pipelines, p.simulated(k.shares[r]))
		}
	}
	for _, p := range k.job.Pipelines {
		k.estimate = max(k.estimate, p.Estimate())
	}
	rows := k.rows()
	k.job.Reduce, k.job.Tied, k.job.Commit, k.job.Update = 2*c.exchangeTime(rows, c.everything()), c.tiedTime(rows), c.commitTime(rows), c.updateTime(k, rows)
	k.job.Gather = c.exchangeTime(rows, k.sharded) // in place of that much of the reduction
	k.job.Reduce -= min(k.job.Gather, k.job.Reduce)
	k.estimate += k.job.Tail()
	k.movedByte = c.movedBytes(rows)
	return nil
}

// rows are by replica and stage where the stages are.
func (k *candidate) rows() [][]cell {
	if k.layout != nil {
		return k.layout.rows
	}
	rows := make([][]cell, len(k.pipes))
	for r, p := range k.pipes {
		for s, u := range p.units {
			first, end := p.layers(s)
			rows[r] = append(rows[r], cell{unit: u, first: first, end: end})
		}
	}
	return rows
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
	return fmt.Errorf("%w: device %s of %s would need %s for layers [%d,%d), %s are free; add a node, use more stages, a smaller model or a smaller micro-batch",
		ErrNoFit, u.device, u.peer, cost.Size(no.NeedBytes), no.First, no.End, cost.Size(no.FreeBytes))
}

// movedBytes is how many parameters units hold that their node does not hold under the
// previous plan.
func (c *cluster) movedBytes(rows [][]cell) int64 {
	if c.held == nil {
		return 0
	}
	moved := int64(0)
	for _, row := range rows {
		for _, k := range row {
			for l := k.first; l < k.end; l++ {
				if !c.held[peerLayer{c.units[k.unit].peer, l}] {
					moved += c.params[l+1] - c.params[l]
				}
			}
		}
	}
	return moved
}

type peerLayer struct {
	peer  PeerID
	layer int
}

// heldLayers is what the nodes hold under the previous plan; nil without one.
func heldLayers(previous *Plan) map[peerLayer]bool {
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
