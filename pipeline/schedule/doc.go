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
// The package is pure: no input or output, no clock, no goroutine; the same arguments
// give the same result on every architecture. It imports nothing of this module. The
// planner, the simulator and the runner call it.
package schedule
