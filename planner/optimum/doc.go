// Package optimum finds the least step of all sets and orders of devices, numbers of replicas and cuts, by branch and bound.
//
// Three nouns:
//
//   - Devices: what is planned on, with its cost model.
//   - Lower: a step that no plan of a shape can beat. The planner looks at shapes in that order, too.
//   - Search: places one stage after the other, for as long as what is placed can still be part of a shorter step.
//
// Its caller cuts a replica and times a plan, as the planner does for its own plans. The package works on numbers of devices and
// layers, in integers. It imports planner/cost and pipeline/schedule.
package optimum
