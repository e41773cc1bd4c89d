// Package sharding weighs what the replicas of a pipeline stage could hold in parts, each replica
// one: optimizer state, gradients or parameters (ZeRO, Rajbhandari et al. 2020, sections 5 and
// 7), for each stage by itself.
//
// Nouns:
//
//   - Group: the layers that are decided for together.
//   - Kind: what can be in parts. Set: some of the kinds.
//   - Stage: what each kind would free of it, and what an exchange of it costs.
//
// It is a small knapsack: the value of a set is the bytes that it frees, its cost what its
// exchanges take beyond the passes that hide them. The planner says with it what a stage
// that lacks memory would need; of the kinds workers run the first. It imports pipeline/schedule,
// for the unit of time, and planner's cost and plan, for stages and layers.
package sharding
