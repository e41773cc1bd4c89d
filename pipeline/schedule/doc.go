// Package schedule says in which order the workers of a pipeline compute and
// communicate during one step. A schedule is data: per worker a list of actions, which
// prints as text (`2F0` is the forward of micro-batch 0 on stage 2) and parses back.
//
// Nouns:
//
//   - Action: one operation on one micro-batch of one stage of one replica.
//   - Schedule: per worker its actions in program order. A worker holds the stages that
//     it computes; nothing else says which.
//   - Shape: how many stages and micro-batches a generator is asked for.
//   - Spec: the name of a schedule, `kfkb:k=3`; a plan holds it, and every node builds the
//     same actions from it for each Group of replicas.
//   - Costs: what stages and boundaries of one replica take, in integer nanoseconds.
//   - Timeline: when each action of a schedule runs under given costs.
//
// Generators (GPipe, Depth, Warmups) make schedules from integers, passes
// (WithCommunication, WithReduceAndStep, Join) turn schedules into schedules, Validate
// accepts or refuses them, Simulate times them. The runner interprets any schedule that
// validates, so order costs time but never correctness.
//
// Backward actions of one stage come in ascending micro-batch order: that is the order
// in which gradients accumulate, and with it the losses do not depend on the schedule.
//
// # What the runner asks of a kind
//
// A kind in the table of spec.go orders forwards and backwards (or input and weight
// gradients, and recomputations) alone; the runner adds communication, reductions and
// steps with the passes. It
//
//   - has one contiguous Share of the micro-batches for each replica: two directions of one
//     pipeline are two replicas of a Group on the same workers;
//   - holds each (replica, stage) on one worker throughout, and several of them where
//     Chunks or Replicas is more than 1. Where stages s and s+1 of a replica share a worker,
//     the tensors between them are handed over there without a message;
//   - gives each stage's weight gradients in ascending micro-batch order;
//   - may place REDUCE and STEP itself; WithReduceAndStep adds what is missing. REDUCE hands
//     the gradient of one stage in and does not wait for the others; STEP waits for all.
//
// A stage that has a Recompute for a micro-batch keeps nothing of its forward but the input.
//
// The package is pure: no input or output, no clock, no goroutine; the same arguments
// give the same result on every architecture. It imports nothing of this module. The
// planner, the simulator and the runner call it.
package schedule
