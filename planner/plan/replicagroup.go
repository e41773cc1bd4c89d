package plan

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

// Lane is a row of seats that runs one group of a schedule's replicas: one replica, or the
// two directions of a bidirectional pipeline. A seat holds one stage of each, or several
// where the schedule interleaves chunks.
type ReplicaGroup struct {
	Workers []WorkerID
	// Layers is by seat how many layers of each replica it holds.
	Layers []int
	First  Micro
	Micros int
	// Warmups are those of 1f1b and gpipe.
	Warmups []int
}

// Pipelines are the lane's replicas under a schedule, the first of them with the given
// number. The error says which number of stages, layers or micro-batches does not fit, and
// wraps schedule.ErrBadShape, ErrBadSpec or ErrInvalid.
func (l ReplicaGroup) Pipelines(spec schedule.Spec, first Replica) ([]Pipeline, error) {
	g := l.group(spec, first)
	holders, err := l.holders(spec, g)
	if err != nil {
		return nil, err
	}
	parts, err := l.Parts(spec.Chunks())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	pipes := make([]Pipeline, len(g.Shares))
	for i, share := range g.Shares {
		pipes[i] = Pipeline{FirstMicro: share.First, Micros: share.Micros, Warmups: l.Warmups, Stages: l.Stages(holders[i], parts)}
	}
	return pipes, nil
}

// holders are by replica and stage the numbers of the seats, as the schedule's actions say.
func (l ReplicaGroup) holders(spec schedule.Spec, g schedule.Group) ([][]int, error) {
	holders := make([][]int, len(g.Shares))
	if spec.Kind == ScheduleName { // stage s on seat s: a plan of very many is made often
		for s := range l.Workers {
			holders[0] = append(holders[0], s)
		}
		return holders, nil
	}
	g.First = 0 // a lane alone: its holders do not depend on the numbers of its replicas
	s, err := spec.Build(g)
	if err != nil {
		return nil, err
	}
	if err := schedule.Validate(schedule.WithCommunication(s), schedule.Limits{}); err != nil {
		return nil, fmt.Errorf("%s: %w", spec, err)
	}
	if len(s.Workers) != len(l.Workers) {
		return nil, fmt.Errorf("%w: %s needs %s for %s, there are %d", schedule.ErrBadShape, spec, Count(len(s.Workers), "device"), Count(g.Stages, "stage"), len(l.Workers))
	}
	for i := range holders {
		for st := range g.Stages {
			holders[i] = append(holders[i], s.Holder(Replica(i), Stage(st)))
		}
	}
	return holders, nil
}

// group is what the schedule is built for.
func (l ReplicaGroup) group(spec schedule.Spec, first Replica) schedule.Group {
	n := spec.Replicas()
	g := schedule.Group{First: first, Stages: len(l.Workers) * spec.Chunks(), Warmups: l.Warmups}
	for i := range n {
		from, to := l.Micros*i/n, l.Micros*(i+1)/n
		g.Shares = append(g.Shares, schedule.Share{First: l.First + Micro(from), Micros: to - from})
	}
	return g
}

// parts are by seat the layers of each of its chunks, as even as can be.
func (l ReplicaGroup) Parts(chunks int) ([][]int, error) {
	parts := make([][]int, len(l.Workers))
	for i, n := range l.Layers {
		if n < chunks {
			return nil, fmt.Errorf("%w: device %s of %s has %s for %d chunks, each needs at least one; take fewer devices (stages), fewer chunks or a deeper model",
				schedule.ErrBadShape, l.Workers[i].Device, l.Workers[i].Peer, Count(n, "layer"), chunks)
		}
		for c := range chunks {
			parts[i] = append(parts[i], n*(c+1)/chunks-n*c/chunks)
		}
	}
	return parts, nil
}

// stages places the stages of one replica, given the worker of each. With one chunk a seat
// the cut is that of the seats' order whichever way the pipeline goes.
func (l ReplicaGroup) Stages(holders []int, parts [][]int) []Placement {
	stages := make([]Placement, len(holders))
	next, seen := 0, make([]int, len(l.Workers))
	for st, w := range holders {
		n := parts[w][seen[w]]
		if len(holders) == len(l.Workers) {
			n = parts[st][0]
		}
		seen[w]++
		stages[st] = Placement{Peer: l.Workers[w].Peer, Device: l.Workers[w].Device, Layers: LayerRange{First: next, End: next + n}}
		next += n
	}
	return stages
}

// Lanes are the rows of seats of a plan, as Pipelines made them.
func (p Plan) ReplicaGroups() ([]ReplicaGroup, error) {
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	n := spec.Replicas()
	if len(p.Replicas)%n != 0 {
		return nil, fmt.Errorf("%w: %s takes its replicas %d at a time, the plan has %d", ErrBadPlan, spec, n, len(p.Replicas))
	}
	var lanes []ReplicaGroup
	for group := range slices.Chunk(p.Replicas, n) {
		l := ReplicaGroup{First: group[0].FirstMicro, Warmups: group[0].Warmups}
		for _, pipe := range group {
			l.Micros += pipe.Micros
		}
		for _, pl := range group[0].Stages {
			at := slices.Index(l.Workers, pl.Worker())
			if at < 0 {
				at, l.Workers, l.Layers = len(l.Workers), append(l.Workers, pl.Worker()), append(l.Layers, 0)
			}
			l.Layers[at] += pl.Layers.Len()
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// elastic tells whether the plan's warm-ups alone say in which order its seats compute.
func (p Plan) Elastic() bool {
	stages := 0
	for _, pipe := range p.Replicas {
		stages += len(pipe.Stages)
	}
	return p.Schedule == ScheduleName && len(p.Workers()) == stages
}
