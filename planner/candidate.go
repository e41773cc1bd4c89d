package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/neighbours"
	"pnode/planner/plan"
	"pnode/planner/rounds"
	"pnode/planner/sim"
)

// shape is how many replica groups of how many devices.
type shape struct{ replicas, stages int }

func (s shape) devices() int { return s.replicas * s.stages }

func (s shape) String() string {
	return fmt.Sprintf("%s of %s", plan.Count(s.replicas, "replica"), plan.Count(s.stages, "stage"))
}

// bounded is a shape with a step time that it cannot beat, and one that it may come near to.
type bounded struct {
	shape
	bound, likely schedule.Nanos
}

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

	// apart reports that the replicas have local steps, and rounds when they make outer steps. pinned is what the plan in force says of that.
	apart  bool
	rounds rounds.Choice
	pinned *plan.Local

	// job is a step without its tail, of which tied are the bytes that the model's ends exchange, and vectors are by replica the sums
	// of gradients that it sends.
	job      sim.Job
	tied     int64
	vectors  []int
	estimate schedule.Nanos
	ended    schedule.Nanos // when the passes end, by the estimate
	// result is there once the candidate has been simulated.
	result     sim.Result
	simulated  bool
	movedBytes int64
}

// sharded returns the layers whose optimizer state the replicas hold in parts.
func (k *candidate) sharded() plan.LayerRanges { return k.model.Memory.Parts().Layers }

// partials returns how many partial sums of gradients a stage has at most.
func (k *candidate) partials() int { return k.model.Memory.Parts().Partials }

// postValidates reports whether the workers apply a step before its commit: the model counts the memory for it.
func (k *candidate) postValidates() bool { return k.model.Memory.Parts().Undo && k.copies() == 1 }

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
func (k *candidate) passes() schedule.Nanos { return k.ended }

// devices lists the devices, replica group by replica group.
func (k *candidate) devices() (all []int) {
	for _, p := range k.pipes {
		all = append(all, p.devices...)
	}
	return all
}

// arrangement returns where a candidate's devices are, with the cut of a single pipeline.
func (k *candidate) arrangement() neighbours.Arrangement {
	a := neighbours.Arrangement{Replicas: k.shape.replicas, Devices: k.devices()}
	if len(k.pipes) == 1 {
		a.Ends = k.pipes[0].ends
	}
	return a
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

// simulate replaces the estimate.
func (k *candidate) simulate() error {
	job := k.job
	if !k.programmed() { // other candidates may have the same pipes
		job.Pipelines = slices.Clone(job.Pipelines)
		for r, p := range k.pipes {
			job.Pipelines[r].Passes = p.passes[k.shares[r]]
		}
	}
	job.Tail = k.tail()
	job.PostValidation = job.Tail != nil && k.postValidates()
	result, err := sim.Run(job)
	if err != nil {
		return fmt.Errorf("planner: simulate %v: %w", k.shape, err)
	}
	if !k.programmed() {
		for r, p := range k.pipes {
			if p.passes == nil {
				p.passes = map[int][]schedule.Interval{}
			}
			p.passes[k.shares[r]] = result.Passes[r]
		}
	}
	k.result, k.simulated = result, true
	return nil
}

// memory returns what the stages of a device take of its memory, with the node's own, and what there is.
func (k *candidate) memory(device int) (need, total int64) {
	if k.programmed() {
		return k.layout.Need[device], k.model.Room(device)
	}
	for r, row := range k.layout.Rows {
		for s, at := range row {
			if at.Device == device {
				room := k.pipes[r].Rooms[s]
				need += k.model.Fixed(device, at.First, at.End) + room.PassBytes + int64(at.Use.Slots)*room.SlotBytes
			}
		}
	}
	pass := k.model.On(device).Pass()
	return need + pass, k.model.Devices[device].FreeBytes + pass
}

// unlinked returns how long the passes would take if messages took no time.
func (k *candidate) unlinked() (schedule.Nanos, error) {
	if k.programmed() {
		return k.layout.Unlinked(k.model)
	}
	result, err := sim.Run(k.job.Unlinked())
	return result.Step, err
}
