// Package planner decides who computes what: from the run's spec, the model's costs and
// the nodes' profiles it makes a plan, with the reasons for it. It also holds the words
// that every other package shares (Plan, Placement, Profile, RunSpec, PeerID, Step, ...).
//
// Nouns:
//
//   - Plan: what one generation does: replicas x stages on devices, layer ranges,
//     warm-ups, shares of the micro-batches, holders of copies.
//   - Profile: what a node measured about itself and its links.
//   - Input: all that a plan depends on.
//   - Reasons: why the plan is as it is, for people.
//
// The words are in plan.go, run.go, profile.go, seen.go and reason.go; what a run may ask for in
// recompute.go, shard.go, storage.go, codec.go, ordering.go and message.go; plans as programs in
// lane.go, programs.go and course.go, what replicas have of state in sharded.go.
//
// Make runs in these steps (file in brackets):
//
//  1. Usable devices of the input [input.go] and their links become units, which are numbers from
//     then on [cluster.go, links.go, storing.go]. What layers take of them is in package memory.
//  2. Shapes (replicas x stages) in the order of a lower bound of the step time [shapes.go], and
//     for each the devices and orders worth a look [search.go, package order].
//  3. For each order the exact cut of the layers [cut.go, package partition], the minimal
//     warm-ups under memory [package elastic] and the shares of the replicas [candidate.go, lean.go];
//     optimizer state in parts or in host memory where memory asks for it [arrange.go,
//     variants.go, trim.go]. Under schedules whose order does not follow from warm-ups a
//     candidate is a layout, read off its programs [layout.go, package layout].
//  4. The best by estimate are simulated [choose.go]. Where a run asks for no schedule, the
//     best of a few shapes are looked at with several chunks of layers on each device, through
//     which micro-batches go in groups [grouping.go]. Among those close to the best, the one
//     that moves the least state wins.
//  5. Holders, plan and reasons [make.go, holder.go, explain.go, told.go, sharetext.go].
//
// ShouldReplan tells whether a new plan is worth a change [replan.go], Reselect whether another
// schedule for the same stages is [reselect.go, regroup.go, watch.go]; Predict times any
// plan [predict.go].
//
// The package is pure: no input or output, no clock, no goroutine, no dependence on map
// order or floating point. The same input gives the same bytes on every architecture,
// whatever the order of the members. The leader's node calls it. It imports
// pipeline/model for layer costs, pipeline/schedule, and its own parts, none of which knows
// it: cost, elastic, layout, memory, order, partition, sharding and sim.
package planner
