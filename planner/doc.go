// Package planner decides who computes what: from the run's spec, the model's costs and
// the nodes' profiles it makes a plan, with the reasons for it. Plans and all other nouns of the
// program are in package plan.
//
// Nouns:
//
//   - Input: all that a plan depends on. A problem is the input in integers: devices, links, layers,
//     what nodes hold; it never changes [problem.go, links.go, measured.go].
//   - cost.Model: the one cost model, with a precision, sharding and offload: times, memory, bytes.
//     Measured times override it. Package cost.
//   - search: the candidates of a problem in one precision, with what it has tried [search.go].
//   - candidate: a cut, and the stages that follow from it under a schedule [candidate.go].
//   - cutter: layers for devices in order [cut.go]. draft: a candidate as a plan [draft.go].
//
// Make runs in these steps:
//
//  1. newProblem reads the input, newSearch makes the cost model of a precision [precision.go].
//  2. Shapes (replicas x stages) in the order of a lower bound of the step time, and for each the
//     devices and orders worth a look [search.go, package order].
//  3. For each order the exact cut of the layers [cut.go, package partition], the minimal warm-ups
//     under memory [package elastic] and the shares of the replicas; optimizer state in parts or in
//     host memory where memory asks for it [candidate.go]. Under schedules whose order does not follow
//     from warm-ups the stages are read off programs [package layout].
//  4. The best by estimate are simulated [package sim], and the search is repeated from there. Where a
//     run asks for no schedule, a few are tried with several chunks of layers on each device, through
//     which micro-batches go in groups [groups.go].
//  5. Among candidates close to the best, the one that moves the least state wins. Sharding and
//     offload that bring nothing are dropped [prune.go], messages get the most exact codecs.
//  6. Holders of copies [holders.go] and reasons [explain.go].
//
// ShouldReplan decides whether a new plan is worth a change, Predict times any plan, Timing is what a
// simulation of its programs runs with [predict.go]. Reselect derives another schedule for the same
// stages from measured times, Watch decides when to change to it [reselect.go].
//
// The package is pure: no input or output, no clock, no goroutine, no dependence on map
// order or floating point. The same input gives the same bytes on every architecture,
// whatever the order of the members. The leader's node calls it. It imports
// pipeline/model for layer costs, pipeline/schedule, and its own parts, none of which knows
// it: cost, elastic, layout, order, partition, plan, sharding and sim.
package planner
