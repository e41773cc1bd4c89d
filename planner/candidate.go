package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/partition"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// candidate is a plan under consideration: a cut, and the stages that follow from it under a
// schedule.
type candidate struct {
	shape shape
	// order is the schedule on each replica group, model has the sharding and offload that it runs
	// with.
	order ordering
	model *cost.Model
	// pipes and shares are by replica group: devices with their layers, and micro-batches.
	pipes  []*pipe
	shares []int
	// layout has the stages of every replica. They follow from pipes where warm-ups say the order,
	// otherwise they are read off programs.
	layout *layout.Layout
	// kept reports that it is the cut of the plan in force.
	kept bool
	// instead is the same cut in 1F1B, where the planner chose groups; proven reports that no other
	// groups of these chunks end sooner in the memory that there is.
	instead *candidate
	proven  bool

	job      sim.Job
	estimate schedule.Nanos
	// result is there once the candidate has been simulated.
	result     sim.Result
	simulated  bool
	movedBytes int64
}

// sharded returns the layers whose optimizer state the replicas hold in parts.
func (k *candidate) sharded() plan.LayerRanges { return k.model.Memory.Parts().Layers }

// copies returns how many replicas the plan has.
func (k *candidate) copies() int { return k.shape.replicas * k.order.copies }

// step returns the best knowledge of the step's time.
func (k *candidate) step() schedule.Nanos {
	if k.simulated {
		return k.result.Step
	}
	return k.estimate
}

// passes returns the time of a candidate's pipelines.
func (k *candidate) passes() schedule.Nanos { return k.estimate - k.job.Tail() }

// devices lists the devices, replica group by replica group.
func (k *candidate) devices() (all []int) {
	for _, p := range k.pipes {
		all = append(all, p.devices...)
	}
	return all
}

// uses reports whether a candidate places a stage on a device.
func (k *candidate) uses(device int) bool {
	return slices.ContainsFunc(k.pipes, func(p *pipe) bool { return slices.Contains(p.devices, device) })
}

// tight reports whether memory or latency keeps a replica from its best period.
func (k *candidate) tight() bool {
	return slices.ContainsFunc(k.pipes, func(p *pipe) bool { return p.Period > p.Costs.Floor() })
}

// programmed reports whether programs say what the stages keep and how long they take.
func (k *candidate) programmed() bool { return k.layout != nil && len(k.layout.Programs.Workers) > 0 }

// wantsMemory reports whether more memory could make a candidate's step shorter.
func (s *search) wantsMemory(k *candidate) bool {
	return k.tight() || k.layout.Recompute() || k.order.elastic() && slices.ContainsFunc(k.pipes, s.cutter(k).crowded)
}

// arrange makes a candidate of devices in order: the first ones are replica 0. Devices that have
// memory of their own keep the optimizer state of their stages in that of their node if this brings
// what memory prevents otherwise: to fit at all or, of no very many devices, a shorter step for all
// that the copies take.
func (s *search) arrange(sh shape, order []int) (*candidate, error) {
	here, err := s.arrangeSharded(sh, order, nil)
	offload := s.offloaders(order)
	if offload == nil || err == nil && (len(s.problem.devices) > settleUpTo || !s.wantsMemory(here)) {
		return here, err
	}
	there, fail := s.arrangeSharded(sh, order, offload)
	if err == nil && (fail != nil || there.estimate >= here.estimate) {
		return here, nil
	}
	return there, fail
}

// offloaders returns which of some devices may keep optimizer state in host memory; nil for none.
func (s *search) offloaders(devices []int) (offload []bool) {
	for _, d := range devices {
		if at := s.models.whole().Devices[d]; at.CopyBytesPerS > 0 && at.HostBytes > 0 {
			if offload == nil {
				offload = make([]bool, len(s.problem.devices))
			}
			offload[d] = true
		}
	}
	return offload
}

// arrangeSharded makes a candidate of devices in order, some of which offload. Where the rule leaves
// it open, the replicas hold their optimizer state in parts if this brings what memory prevents
// otherwise: to fit at all, or a shorter step with more in flight, other cuts or less recomputed.
func (s *search) arrangeSharded(sh shape, order []int, offload []bool) (*candidate, error) {
	rule, n := s.in.Run.Train.Shard, sh.replicas*s.order.copies
	as := func(p cost.Parts) (*candidate, error) {
		return s.cutAll(&candidate{shape: sh, order: s.order, model: s.models.with(p, offload)}, order)
	}
	all := cost.Parts{Replicas: n, Layers: s.models.whole().Memory.All()}
	if n > 1 && rule == plan.ShardOn {
		return as(all)
	}
	whole, err := as(cost.Parts{})
	if n == 1 || rule == plan.ShardOff || err == nil && !s.wantsMemory(whole) {
		return whole, err
	}
	parts, fail := as(all)
	if fail != nil || err == nil && parts.estimate >= whole.estimate {
		return whole, err
	}
	return parts, nil
}

// cutAll cuts the layers for the devices of each replica group of a candidate, and estimates it.
func (s *search) cutAll(k *candidate, order []int) (*candidate, error) {
	micros := (s.in.Run.Train.Micros + k.shape.replicas - 1) / k.shape.replicas
	for r := range k.shape.replicas {
		devices := order[r*k.shape.stages : (r+1)*k.shape.stages]
		p, err := s.cut(k, devices, micros)
		if err != nil {
			return nil, s.noFit(k.model, devices, err)
		}
		k.pipes = append(k.pipes, p)
	}
	return k, s.estimate(k)
}

// estimate fills in what follows from the pipes. Errors wrap ErrNoFit or plan.ErrBadPlan.
func (s *search) estimate(k *candidate) error {
	if k.shares == nil {
		rates := make([]partition.Rate, len(k.pipes)) // the same for all, or as measured
		for r, p := range k.pipes {
			rates[r] = partition.Rate{Each: 1}
			if s.in.Run.Train.UnevenShares {
				rates[r] = partition.Rate{First: p.Costs.RoundTrip(), Each: p.Period}
			}
		}
		k.shares = partition.Shares(s.in.Run.Train.Micros, rates)
	}
	switch {
	case k.programmed():
	case k.order.elastic():
		k.layout = layoutOfPipes(k)
	default:
		if err := s.arrangeLayout(k); err != nil {
			return err
		}
	}
	k.estimate, k.job = 0, sim.Job{}
	if k.programmed() {
		k.job.Pipelines = []sim.Pipeline{{End: k.layout.End}}
	} else {
		for r, p := range k.pipes {
			k.job.Pipelines = append(k.job.Pipelines, p.simulated(k.shares[r]))
		}
	}
	for _, p := range k.job.Pipelines {
		k.estimate = max(k.estimate, p.Estimate())
	}
	rows, m := k.layout.Rows, k.model
	k.job.Reduce, k.job.Tied, k.job.Commit = 2*m.Exchange(rows, m.Memory.All()), m.Tied(rows, 4*int64(s.in.Run.Model.TiedGradLen())), m.Commit(rows)
	k.job.Update = m.Updates(rows)
	k.job.Gather = m.Exchange(rows, k.sharded()) // in place of that much of the reduction
	k.job.Reduce -= min(k.job.Gather, k.job.Reduce)
	k.estimate += k.job.Tail()
	k.movedBytes = s.movedBytes(rows)
	return nil
}

// arrangeLayout makes a candidate's layout: what has to be recomputed for it to fit, and when
// it ends. Errors wrap ErrNoFit or plan.ErrBadPlan.
func (s *search) arrangeLayout(k *candidate) error {
	l, err := s.bareLayout(k)
	if err != nil {
		return err
	}
	var no *layout.NoFit
	if err := layout.Fit(k.model, l, &s.budget); errors.As(err, &no) {
		return s.noLayout(k, no)
	} else if err != nil {
		return err
	}
	k.layout = l
	return nil
}

// layoutOfPipes returns the stages that follow from a candidate's pipes in 1F1B.
func layoutOfPipes(k *candidate) *layout.Layout {
	l := &layout.Layout{Micros: k.shares, Exposed: map[layout.Boundary]schedule.Nanos{}}
	for r, p := range k.pipes {
		row := make([]cost.Stage, len(p.devices))
		for s, d := range p.devices {
			row[s] = cost.Stage{Device: d, Levels: p.Recompute[s], Ahead: p.Ahead[s], Offload: k.model.Offloads(d), Measured: &p.Costs.Stages[s]}
			row[s].First, row[s].End = p.layers(s)
			row[s].Use.Slots = min(p.Warmups[s], k.shares[r]-1) + 1
		}
		for b, exposed := range p.Exposed {
			l.Exposed[layout.Boundary{Replica: r, Stage: b}] = exposed
		}
		l.Rows, l.Codecs = append(l.Rows, row), append(l.Codecs, p.Codecs)
	}
	return l
}

// simulate replaces the estimate.
func (k *candidate) simulate() error {
	result, err := sim.Run(k.job)
	k.result, k.simulated = result, err == nil
	return err
}

const (
	// Candidates whose estimate is within estimatePercent of the best simulated step are
	// simulated, at most as many as do simulateActions in all, at least one.
	estimatePercent = 12
	simulateActions = 1 << 19
	// nearPercent is how much longer a step may be that counts as nearly as good: of such plans
	// the one that moves the least state is taken.
	nearPercent = 2
)

// rank simulates the best candidates and sorts: simulated ones first, the least time
// first. It drops what cannot be simulated; an error means that nothing could be.
func (s *search) rank(ctx context.Context, found []*candidate) ([]*candidate, error) {
	found = distinct(found)
	slices.SortStableFunc(found, func(a, b *candidate) int { return cmp.Compare(a.estimate, b.estimate) })
	var timed, rest []*candidate
	var err error
	best := schedule.Nanos(math.MaxInt64 / 200)
	for _, k := range found {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		if !k.simulated {
			worth := k.estimate <= best+best*estimatePercent/100 && s.simulated < simulateActions
			if !worth && len(timed) > 0 && !k.kept {
				rest = append(rest, k)
				continue
			}
			s.simulated += 2 * s.in.Run.Train.Micros * k.shape.stages
			if fail := k.simulate(); fail != nil {
				if err == nil {
					err = fmt.Errorf("planner: simulate %v: %w", k.shape, fail)
				}
				continue
			}
		}
		timed = append(timed, k)
		best = min(best, k.step())
	}
	if len(timed) == 0 {
		return nil, err
	}
	slices.SortStableFunc(timed, byStep)
	return append(timed, rest...), nil
}

// choose takes one of the ranked candidates; others are the rest.
func (s *search) choose(ranked []*candidate) (best *candidate, others []*candidate) {
	best = ranked[0]
	if s.in.Previous != nil {
		enough := near(best.step())
		for _, k := range ranked {
			closer := k.movedBytes < best.movedBytes || (k.kept && k.movedBytes == best.movedBytes)
			if k.simulated && k.step() <= enough && closer {
				best = k
			}
		}
	}
	others = slices.DeleteFunc(slices.Clone(ranked), func(k *candidate) bool { return k == best })
	slices.SortStableFunc(others, byStep)
	return best, others
}

// near returns the longest step that counts as nearly as good.
func near(step schedule.Nanos) schedule.Nanos { return step + step*nearPercent/100 }

// byStep prefers less time, then less state to move, then fewer devices.
func byStep(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(a.movedBytes, b.movedBytes), cmp.Compare(a.shape.devices(), b.shape.devices()))
}

// candidateKey distinguishes the candidates of one search.
type candidateKey struct {
	shape shape
	model *cost.Model
	pipes packed
}

// distinct drops candidates that were found before.
func distinct(found []*candidate) (out []*candidate) {
	known := map[candidateKey]bool{}
	for _, k := range found {
		key := candidateKey{shape: k.shape, model: k.model}
		for _, p := range k.pipes {
			key.pipes += pack(p.devices) + pack(p.ends) + pack(p.Warmups)
		}
		if !known[key] {
			known[key] = true
			out = append(out, k)
		}
	}
	return out
}

// packed is a list of numbers below 2^24 as a value that can be a key.
type packed string

// pack returns numbers with their count in front.
func pack(numbers []int) packed {
	b := make([]byte, 0, 3*len(numbers)+3)
	for _, n := range append([]int{len(numbers)}, numbers...) {
		b = append(b, byte(n), byte(n>>8), byte(n>>16))
	}
	return packed(b)
}

// slower returns by how many per mille b exceeds a.
func slower(a, b schedule.Nanos) int64 { return int64(b-a) * 1000 / int64(max(a, 1)) }
