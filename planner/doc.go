// Package planner decides who computes what: from the run's spec, the model's costs and
// the nodes' profiles it makes a plan, with the reasons for it. Plans and all other nouns of the
// program are in package plan.
//
// Four nouns follow from each other, each made of the one before:
//
//   - Input -> problem: all that a plan depends on, in integers: devices are numbers, in an order of
//     their own. It never changes [input.go, problem.go, package measure].
//   - problem -> cost.Model: times, memory and bytes of the devices in one precision, with some
//     optimizer state in parts or off the devices [models.go, packages cost and founding].
//   - cost.Model -> candidate: devices in order with their layers (pipes), and the stages that follow
//     from them under a schedule [candidate.go].
//   - candidate -> Plan: the same with peers' names, programs and holders [draft.go, holders.go].
//
// A search makes many candidates of a problem and keeps one. To read how, follow [Make]:
//
//  1. decide: in each precision a search, until something fits [make.go].
//  2. run, explore: shapes (replicas x stages), the lowest bound of the step time first; for each the
//     devices and orders worth a look [search.go, packages optimum and order]. Devices that cannot hold a layer
//     are left out, and pools without far slower ones are looked at too [pools.go].
//  3. arrange: for an order the layers of each replica, with the optimizer state whole, in parts or in
//     host memory, whichever is needed [arrange.go].
//  4. cut: the exact cut for a few numbers of micro-batches in flight [cut.go, package partition]. For
//     each cut the least warm-ups and recomputation under memory [package elastic].
//  5. estimate: the stages, which follow from the warm-ups or, under other schedules, are read off
//     their programs [ordering.go, package layout]; and about how long a step takes.
//  6. rank: the best by estimate are simulated [rank.go, package sim]. improve changes the best of several shapes step by step
//     for as long as that makes their steps shorter [walk.go, package neighbours]. polish looks for a better plan of few
//     devices among all there are [optimum.go, package optimum]. settle repeats the rest from there, until a plan that was
//     just made would be kept.
//  7. withKinds: other kinds of schedules, where the run asks for none, with cuts, orders and devices that suit them [kinds.go]:
//     several chunks of layers on each device, or split backwards in the orders that suit the links [groups.go].
//  8. choose: among nearly equal ones the least state to move, in a first plan of like devices the fewest replicas
//     [rank.go]. prune leaves out sharding and offload that bring nothing [prune.go], widen takes the most exact codecs.
//  9. finish: write, explain, assignHolders: the plan and its reasons [draft.go, explain.go, parts.go].
//
// [MakeWithDetails] adds figures for people [details.go], which package report shows.
//
// A plan that is there goes the other way: adopt makes a candidate of it [predict.go]. On that stand
// [Timing], [Reselect], which derives another schedule for the same stages from measured times
// [reselect.go], and [ShouldReplan] and [Watch], which say when to change [replan.go, package change].
//
// The package is pure: no input or output, no clock, no goroutine, no dependence on map
// order or floating point. The same input gives the same bytes on every architecture,
// whatever the order of the members. A context ends a search and changes no result. The leader's node
// calls it. A member whose profile cannot be is left out with a reason and fails nothing for the others;
// package claims decides before how much of a profile counts. It imports pipeline/model for layer costs, pipeline/schedule, and
// its own parts, none of which knows it: change, cost, elastic, founding, layout, measure, neighbours, optimum, order, partition,
// plan, rounds, sharding and sim. Package report stands above it.
package planner
