package planner

import (
	"fmt"
	"slices"
	"strconv"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/plan"
	"pnode/planner/rounds"
)

// drafts turns candidates into plans, and plans into layouts.
type drafts struct {
	*problem
	programs map[programKey]schedule.Schedule
	// holders are by replica and stage the numbers of workers: to find them takes a schedule.
	holders map[holderKey][][]int
}

// holderKey has all that holders depend on.
type holderKey struct {
	schedule        string
	workers, micros int
	first           plan.Micro
}

// write returns a candidate as a plan, without holders. Its stages have one codec, see widen.
func (d *drafts) write(k *candidate) (plan.Plan, error) {
	p, err := d.skeleton(k)
	if err != nil {
		return plan.Plan{}, err
	}
	d.writeChoices(&p, k)
	if p.Stream = d.in.Stream; k.apart {
		p.Local = k.rounds.Local()
	}
	rounds.Begin(&p, d.in.Own)
	p.PostValidation = k.postValidates()
	if p.Codec = d.settled; d.in.Run.Train.Codec.Auto() && p.Crosses() {
		p.Codec = p.Replicas[0].Stages[0].Codec
	}
	if d.in.Run.Train.Storage.Auto {
		for r, row := range k.layout.Rows {
			for st, at := range row {
				p.Replicas[r].Stages[st].Storage = k.model.Devices[at.Device].Storage
			}
		}
	}
	return p, nil
}

// writeChoices writes what a candidate's stages recompute and how they send.
func (d *drafts) writeChoices(p *plan.Plan, k *candidate) {
	_, fixed := d.in.Run.Train.Recompute.Level()
	for r, row := range k.layout.Rows {
		for st, at := range row {
			place := &p.Replicas[r].Stages[st]
			if !fixed {
				place.Recompute = plan.JoinLevels(at.Levels)
			}
			if st < len(row)-1 {
				place.Codec, place.Ahead = k.layout.Codecs[r][st].String(), at.Ahead
			}
		}
	}
}

// skeleton returns a plan with a candidate's stages where they are: the schedule places them on
// replica groups.
func (d *drafts) skeleton(k *candidate) (plan.Plan, error) {
	p := plan.Plan{Run: d.in.Run.Run, Generation: d.in.Generation, Start: d.in.Start, Schedule: k.order.spec.String(), Sharded: k.sharded()}
	micro := plan.Micro(0)
	for r, pipe := range k.pipes {
		group := d.group(k.order, pipe, k.shares[r])
		group.First = micro
		key := holderKey{p.Schedule, len(group.Workers), group.Micros, micro}
		group.Holders = d.holders[key]
		pipes, err := k.order.pipelines(group, plan.Replica(len(p.Replicas)))
		if err != nil {
			return plan.Plan{}, fmt.Errorf("planner: make generation %d: %w", d.in.Generation, err)
		}
		if k.order.copies == 1 && group.Holders == nil {
			d.holders[key] = [][]int{nil}
			for _, place := range pipes[0].Stages {
				d.holders[key][0] = append(d.holders[key][0], slices.Index(group.Workers, place.Worker()))
			}
		}
		p.Replicas = append(p.Replicas, pipes...)
		micro += plan.Micro(k.shares[r])
	}
	for _, pipe := range p.Replicas {
		for st := range pipe.Stages {
			pipe.Stages[st].Offload = k.model.Offloads(d.find(pipe.Stages[st].Worker()))
		}
	}
	return p, nil
}

// group returns a pipe's devices in order, with a share of the micro-batches.
func (d *drafts) group(o ordering, pipe *pipe, micros int) plan.ReplicaGroup {
	g := plan.ReplicaGroup{Micros: micros, Sums: d.in.Run.Train.Sums(), Layers: pipe.lengths()}
	for _, at := range pipe.devices {
		g.Workers = append(g.Workers, plan.WorkerID{Peer: d.problem.devices[at].peer, Device: d.problem.devices[at].name})
	}
	if slices.Contains(plan.WarmUps, o.spec.String()) {
		for _, w := range pipe.Warmups {
			g.Warmups = append(g.Warmups, min(w, micros/o.copies-1))
		}
	}
	return g
}

// layoutOf returns a plan's stages as far as the plan itself says. Errors wrap plan.ErrBadPlan.
func (d *drafts) layoutOf(p plan.Plan) (*layout.Layout, error) {
	list, err := d.programsOf(p)
	if err != nil {
		return nil, err
	}
	l := &layout.Layout{Programs: list}
	workers := p.Workers()
	sums := d.in.Run.Train.Sums()
	for r, pipe := range p.Replicas {
		share, _ := sums.Share(pipe.FirstMicro, pipe.Micros)
		partials := sums.Partials(share)
		row := make([]cost.Stage, len(pipe.Stages))
		for st, place := range pipe.Stages {
			id := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)}
			device, err := d.placed(place.Worker())
			if err != nil {
				return nil, err
			}
			at := cost.Stage{
				Device: device, First: place.Layers.First, End: place.Layers.End, Worker: slices.Index(workers, place.Worker()),
				Shares: p.Shares(id), Partials: partials, Ahead: place.Ahead, Offload: place.Offload,
			}
			if place.Recompute != "" {
				if at.Levels, err = place.Recompute.Expand(at.Len()); err != nil {
					return nil, err
				}
			}
			at.Use = list.Use(at.Worker, id.Replica, id.Stage)
			row[st] = at
		}
		codecs, err := pipe.Codecs()
		if err != nil {
			return nil, err
		}
		l.Rows, l.Codecs, l.Micros = append(l.Rows, row), append(l.Codecs, codecs), append(l.Micros, pipe.Micros)
	}
	return l, nil
}

// programKey has all that the programs of a plan depend on: not which workers there are.
type programKey struct {
	schedule, sharded string
	replicas          packed
}

// programsOf returns a plan's programs without what is ahead of gradients.
func (d *drafts) programsOf(p plan.Plan) (schedule.Schedule, error) {
	key, workers := programKey{schedule: p.Schedule, sharded: p.Sharded.String()}, p.Workers()
	for _, pipe := range p.Replicas {
		key.replicas += pack([]int{int(pipe.FirstMicro), pipe.Micros}) + pack(pipe.Warmups)
		at := make([]int, len(pipe.Stages))
		for i, place := range pipe.Stages {
			at[i] = slices.Index(workers, place.Worker())
		}
		key.replicas += pack(at)
	}
	if list, ok := d.programs[key]; ok {
		return list, nil
	}
	list, err := p.BackwardPrograms()
	if err != nil {
		return list, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
	}
	d.programs[key] = list
	return list, nil
}

// bareLayout returns a candidate's layout with nothing recomputed, in the narrowest codec.
func (d *drafts) bareLayout(k *candidate) (*layout.Layout, error) {
	p, err := d.skeleton(k)
	if err != nil {
		return nil, err
	}
	l, err := d.layoutOf(p)
	if err != nil {
		return nil, err
	}
	_, narrowest := d.in.Run.Train.Codec.Bounds()
	for _, codecs := range l.Codecs {
		for b := range codecs {
			codecs[b] = narrowest
		}
	}
	return l, nil
}

// inFlight returns by device about how many micro-batches a replica group's programs keep of its
// layers.
func (d *drafts) inFlight(o ordering, devices, micros int) ([]int, error) {
	chunks := o.spec.Chunks()
	group := plan.ReplicaGroup{Micros: micros, Layers: slices.Repeat([]int{chunks}, devices)}
	for i := range devices {
		group.Workers = append(group.Workers, plan.WorkerID{Device: strconv.Itoa(i)})
	}
	if slices.Contains(plan.WarmUps, o.spec.String()) {
		group.Warmups = schedule.DepthWarmups(devices, 1)
	}
	p := plan.Plan{Schedule: o.spec.String()}
	var err error
	if p.Replicas, err = o.pipelines(group, 0); err != nil {
		return nil, err
	}
	list, err := d.programsOf(p)
	if err != nil {
		return nil, err
	}
	sums := make([]int, devices)
	for _, worker := range p.Workers() {
		i, _ := strconv.Atoi(worker.Device)
		for _, at := range p.StagesOf(worker) {
			sums[i] += list.Use(list.Holder(at.Replica, at.Stage), at.Replica, at.Stage).Slots
		}
		sums[i] = (sums[i] + chunks - 1) / chunks
	}
	return sums, nil
}
