package pipeline

import (
	"fmt"
	"slices"

	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// program holds one worker's part of a plan: values derived from the run, the plan and the worker's
// ID. It owns nothing. A commit that names another schedule replaces it between two steps.
type program struct {
	spec   plan.RunSpec
	plan   plan.Plan
	worker plan.WorkerID
	list   schedule.Schedule // the actions of all workers
	number int               // of this worker in list
	local  *plan.Local       // of the replica, whose plan is of it alone; nil: there are no outer steps
	met    plan.Step         // the inner step after which the newest outer one was made, or the plan's start
	before plan.Step         // that of the outer step before, or the step before the plan's start
}

// Programs returns the action lists of a plan's workers, in the order of plan.Workers. Errors wrap
// ErrBadConfig.
func Programs(p plan.Plan) (schedule.Schedule, error) {
	s, err := p.Programs()
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	return s, nil
}

// newProgram checks the plan against the run. Errors wrap ErrBadConfig.
func newProgram(run plan.RunSpec, p plan.Plan, worker plan.WorkerID) (program, error) {
	if err := p.Validate(run.Model.Layers(), run.Train.Sums()); err != nil {
		return program{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	if err := p.CheckTied(run.Model); err != nil {
		return program{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	number := slices.Index(p.Workers(), worker)
	if number < 0 {
		return program{}, fmt.Errorf("%w: the plan has nothing on device %s of %s", ErrBadConfig, worker.Device, worker.Peer)
	}
	list, err := Programs(p)
	return program{spec: run, plan: p, worker: worker, list: list, number: number}, err
}

// with returns the program of the same plan under another schedule, in its text form, which may have other shares of
// the micro-batches.
func (p program) with(text string) (program, error) {
	choice, err := plan.ParseScheduleChoice(text)
	if err == nil {
		p.plan, err = p.plan.WithSchedule(choice)
	}
	if err == nil {
		err = p.plan.Validate(p.spec.Model.Layers(), p.spec.Train.Sums())
	}
	if err != nil {
		return program{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	if p.list, err = Programs(p.plan); err == nil {
		err = p.spec.Model.CheckSegments(p.list.Segments)
	}
	return p, err
}

// coordinates reports whether this worker collects the reports of a step and commits it.
func (p *program) coordinates() bool { return p.plan.Coordinator() == p.worker }

// share returns the groups of micro-batches of a replica.
func (p *program) share(r plan.Replica) plan.GroupRange {
	pipe := p.plan.Replicas[r]
	share, _ := p.spec.Train.Sums().Share(pipe.FirstMicro, pipe.Micros) // of a valid plan
	return share
}

// pieces returns into how many pieces each layer's gradient is cut for the square sums that are reported:
// as many whatever the number of replicas.
func (p *program) pieces() int { return model.Pieces(p.spec.Train.Sums().Groups) }

// squaresBytes returns the memory for the square sums of a layer: a piece has at most two ranges.
func (p *program) squaresBytes() int64 { return 4 * 2 * int64(p.pieces()) }

// tokensPerMicro returns B*T, the tokens of one micro-batch.
func (p *program) tokensPerMicro() int { return p.spec.Train.MicroBatch * p.spec.Model.Context }

// headLayer returns the number of the last layer.
func (p *program) headLayer() int { return p.spec.Model.Layers() - 1 }

// evaluates reports whether a micro-batch belongs to an evaluation: their numbers follow those of training.
func (p *program) evaluates(m plan.Micro) bool { return int(m) >= p.spec.Train.Micros }

// shadowMicro numbers held-out micro-batch k of the float32 shadows, after all other numbers.
func (p *program) shadowMicro(k int) plan.Micro {
	return plan.Micro(p.spec.Train.Micros + heldOutMicros + k)
}

// part names what an action works on: a micro-batch or, where the schedule cuts sequences, one
// segment of it.
type part struct {
	micro plan.Micro
	model.Segment
}

// part decodes a program's micro-batch number into (micro-batch, segment).
func (p *program) part(number schedule.Micro) part {
	m, segment := p.list.Sequence(number)
	if p.list.Segments > 1 {
		return part{m, model.Segment{Index: segment, Count: p.list.Segments}}
	}
	return part{micro: m}
}

// numberOf encodes a part as the program and the tags of messages number it. A whole micro-batch has
// the number of its first segment.
func (p *program) numberOf(q part) schedule.Micro {
	return q.micro*schedule.Micro(max(p.list.Segments, 1)) + schedule.Micro(q.Index)
}

// tries returns how many numbers the activations of a first try have, whatever the schedule: those of a second one follow.
func (p *program) tries() int32 {
	return int32(min((p.spec.Train.Micros+2*heldOutMicros)*p.spec.Model.Context, 1<<30)) // a segment has a token or more
}

// numbered returns the number in the program of what a message holds.
func (p *program) numbered(t wire.Tag) schedule.Micro {
	if n := p.tries(); p.plan.PostValidation && t.Kind == wire.Activation && t.Index >= n {
		return schedule.Micro(t.Index - n)
	}
	return schedule.Micro(t.Index)
}

// isFirst reports whether the part's forward is the first of its micro-batch on a stage, and its
// backward the last: segments go forward in ascending order, back in descending.
func (p part) isFirst() bool { return p.Index == 0 }

// isLast reports whether the part's backward is the first of its micro-batch on a stage.
func (p part) isLast() bool { return p.Index == max(p.Count, 1)-1 }

// controlTag returns the tag of a report from, or a commit to, a worker: its first stage names it.
func (p *program) controlTag(worker plan.WorkerID, kind wire.Kind, step plan.Step) wire.Tag {
	first := p.plan.StagesOf(worker)[0]
	return wire.Tag{Kind: kind, Generation: p.plan.Generation, Step: step, Replica: first.Replica, Stage: first.Stage}
}

// tiedElsewhere reports whether a stage has one end of a tied embedding and another stage the other.
func (p *program) tiedElsewhere(h *StageRuntime) bool {
	return p.spec.Model.TiedGradLen() > 0 && h.first() != h.last()
}

// holders returns the holders of a stage's layer in all replicas, with the parts that they own.
func (p *program) holders(h *StageRuntime, step plan.Step, layer int) collective.Group {
	group := collective.Group{Self: h.Replica, Sums: p.spec.Train.Sums(), Layer: layer, Generation: p.plan.Generation, Step: step}
	for r, pipe := range p.plan.Replicas {
		for s, place := range pipe.Stages {
			if place.Layers.Contains(layer) {
				group.Members = append(group.Members, collective.Member{Peer: place.Peer, Stage: plan.Stage(s), Groups: p.share(plan.Replica(r))})
			}
		}
		if h.inParts(layer) {
			share := p.plan.Share(plan.Replica(r), layer)
			group.Parts = append(group.Parts, p.spec.StateLayout().Share(layer, share))
		}
	}
	return group
}

// tied returns the two ends of the tied embedding of a stage's replica.
func (p *program) tied(h *StageRuntime, step plan.Step) collective.Tied {
	last := len(h.pipe.Stages) - 1
	return collective.Tied{
		Replica: h.Replica, Generation: p.plan.Generation, Step: step,
		Embed:    collective.Member{Peer: h.pipe.Stages[0].Peer, Stage: 0},
		Head:     collective.Member{Peer: h.pipe.Stages[last].Peer, Stage: plan.Stage(last)},
		SelfHead: h.last(), Groups: p.spec.Train.Sums().Groups,
	}
}
