// Package founding decides what all plans of a run have in common, so that no change of plan changes how its steps round:
//
//   - [PrecisionOf]: in which precision stages store what products read, by the devices that the run begins with.
//   - [SumGroups]: in how many groups of micro-batches gradients are added, by the founder's memory.
//
// The package is pure. Package planner calls it for the first plan, and keeps to the plan in force after that. It imports
// planner/plan, planner/cost for what a model takes, and pipeline/model.
package founding
