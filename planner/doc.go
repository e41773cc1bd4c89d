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
// Make runs in these steps (file in brackets):
//
//  1. Usable devices and their layer times, memory and links [cluster.go, links.go].
//  2. Shapes (replicas x stages) in the order of a lower bound of the step time, and for
//     each the devices and orders worth a look [search.go, order.go].
//  3. For each order the exact cut of the layers, the minimal warm-ups under memory and
//     the shares of the replicas [cut.go, candidate.go].
//  4. The best by estimate are simulated [choose.go]. Where a run asks for no schedule, the
//     best of a few shapes are looked at with several chunks of layers on each device, through
//     which micro-batches go in groups [grouping.go]. Among those close to the best, the one
//     that moves the least state wins.
//  5. Holders, plan and reasons [make.go, holder.go, explain.go].
//
// ShouldReplan tells whether a new plan is worth a change [replan.go]; Predict times any
// plan [predict.go].
//
// The package is pure: no input or output, no clock, no goroutine, no dependence on map
// order or floating point. The same input gives the same bytes on every architecture,
// whatever the order of the members. The leader's node calls it. It imports
// pipeline/model for layer costs, pipeline/schedule, and its own parts cost, elastic,
// partition and sim.
package planner
