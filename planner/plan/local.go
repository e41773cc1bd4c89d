package plan

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

// Local has the replicas of a plan make inner steps on their own, each with its share of every step's micro-batches, and
// outer steps together. A round is the inner steps between two outer steps.
type Local struct {
	Rounds
	// Codec writes outer gradients, see OuterCodecs.
	Codec string `json:"codec"`
}

// MaxLocalReplicas bounds the replicas that make outer steps together: each sends to all others.
const MaxLocalReplicas = 64

// Own names the state that a replica has for itself: the moments of its inner steps, and what its messages lacked so far.
type Own struct {
	// Replica and Step are the replica that saved it, and the outer step at which it did: the plan's Start, or an earlier one for copies.
	Replica Replica `json:"replica"`
	Step    Step    `json:"step"`
	// Copied has the replica begin with the moments alone. What messages lacked at an earlier step may have been sent since, and what
	// those of another replica lacked is for that one to send.
	Copied bool `json:"copied,omitempty"`
}

// CoordinatorOf returns the worker of a replica's last stage, which knows the replica's losses first.
func CoordinatorOf(p Plan, r Replica) WorkerID {
	stages := p.Replicas[r].Stages
	return stages[len(stages)-1].Worker()
}

// RoundEnd returns the step at which a round that begins after a step ends: the next that Every divides, or the run's last one.
// These do not depend on where a plan starts.
func (l Local) RoundEnd(from, last Step) Step {
	return min(from-from%l.Every+l.Every, last)
}

// MergedAt returns the inner step after which the outer step is made that ends the round up to a step, in a run of so many: Delay steps later, where
// that is within the next round. Replicas end a round that is closed early with the outer step, and the run's last one.
func (l Local) MergedAt(end, last Step) Step {
	if at := end + l.Delay; end < last && end%l.Every == 0 && at < l.RoundEnd(end, last) {
		return at
	}
	return end
}

// Travel reports whether messages of a round are on their way after an inner step of the next one, in a plan that starts after some step.
func (l Local) Travel(step, start, last Step) bool {
	end := step - 1 - (step-1)%l.Every
	return end > start && step <= l.MergedAt(end, last)
}

// Block returns the places in the stream that a replica takes of a round of so many steps: those of its step i, from 0, are Micros
// ones from place First + i Micros on.
func (p Pipeline) Block(steps Step) MicroRange {
	first := int64(steps) * int64(p.FirstMicro)
	return MicroRange{first, first + int64(steps)*int64(p.Micros)}
}

// Alone returns the run and the plan of one replica of a local plan: a plan of one replica of smaller steps, which has no outer steps.
// Its micro-batch m is Replicas[r].FirstMicro + m of the run's.
func Alone(run RunSpec, p Plan, r Replica) (RunSpec, Plan) {
	pipe := p.Replicas[r]
	share, _ := run.Train.Sums().Share(pipe.FirstMicro, pipe.Micros) // of a valid plan
	run.Train.Micros, run.Train.SumGroups = pipe.Micros, share.Len()
	run.Train.CheckpointEvery = 0
	if r != 0 {
		run.Train.HeldOutEvery = 0
	}
	pipe.FirstMicro = 0
	p.Replicas, p.Local = []Pipeline{pipe}, nil
	return run, p
}

// FollowsLocal reports whether a plan has local steps, or begins with what others with local steps have left.
func FollowsLocal(p Plan) bool {
	return p.Local != nil || p.Stream.Fresh != 0 || len(p.Stream.Given) > 0 || slices.ContainsFunc(p.Replicas, func(pipe Pipeline) bool { return pipe.Own != nil })
}

// checkLocal returns an error where the replicas of a local plan could not make outer steps, or begin with states that do not fit each other.
func checkLocal(p Plan) error {
	if err := p.Stream.Validate(); err != nil {
		return err
	}
	if err := checkOwn(p); err != nil || p.Local == nil {
		return err
	}
	if err := p.Local.Rounds.Validate(); err != nil {
		return err
	}
	spec, err := schedule.ParseSpec(p.Schedule)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrBadPlan, err)
	case len(p.Replicas) < 2 || len(p.Replicas) > MaxLocalReplicas:
		return fmt.Errorf("%w: local steps of %s, want 2 to %d", ErrBadPlan, Count(len(p.Replicas), "replica"), MaxLocalReplicas)
	case !slices.Contains(outerCodecs, p.Local.Codec):
		return fmt.Errorf("%w: codec %.20q for outer gradients, want one of %v", ErrBadPlan, p.Local.Codec, outerCodecs)
	case p.Local.Fragments != 1:
		return fmt.Errorf("%w: outer steps of %d fragments", ErrBadPlan, p.Local.Fragments)
	case len(p.Sharded) > 0:
		return fmt.Errorf("%w: replicas with local steps hold parts of an optimizer state that they do not have in common", ErrBadPlan)
	case spec.Replicas() != 1:
		return fmt.Errorf("%w: local steps under %s, whose replicas share devices", ErrBadPlan, p.Schedule)
	}
	of := map[WorkerID]int{}
	for r, pipe := range p.Replicas {
		for _, at := range pipe.Stages {
			if first, seen := of[at.Worker()]; seen && first != r {
				return fmt.Errorf("%w: a device of %s computes for replicas %d and %d, which make local steps", ErrBadPlan, at.Peer.Short(), first, r)
			}
			of[at.Worker()] = r
		}
	}
	return nil
}

// checkOwn returns an error unless all replicas have the moments that they begin with from the checkpoint's layers, or all from replicas. Those
// of a plan without local steps begin with the same ones; those with local steps have each replica's at most once but for copies.
func checkOwn(p Plan) error {
	whose := map[Own]bool{}
	for r, pipe := range p.Replicas {
		own, first := pipe.Own, p.Replicas[0].Own
		if (own == nil) != (first == nil) {
			return fmt.Errorf("%w: replica %d begins with the state of a replica, or replica 0, but not both", ErrBadPlan, r)
		}
		if own == nil {
			continue
		}
		switch {
		case own.Replica < 0 || own.Replica >= MaxLocalReplicas || own.Step > p.Start || own.Step < p.Start && !own.Copied:
			return fmt.Errorf("%w: replica %d begins with the state that replica %d had at step %d, copied: %t, in a plan from step %d", ErrBadPlan, r, own.Replica, own.Step, own.Copied, p.Start)
		case p.Local == nil && *own != *first:
			return fmt.Errorf("%w: replica %d begins with another state than replica 0, and they sum gradients in every step", ErrBadPlan, r)
		case p.Local != nil && !own.Copied && whose[*own]:
			return fmt.Errorf("%w: two replicas begin with the state of replica %d, and both would send what its messages lacked", ErrBadPlan, own.Replica)
		}
		whose[*own] = true
	}
	return nil
}
