// Package holders says which members keep the copies of stages' checkpoints, and how often copies are made.
//
// A stage's state is lost with its node unless another one has a copy. The next node should not be lost together with the
// first: by the same power cut, router or owner.
//
// # Nouns
//
//   - Option: a member that may keep the copy of a stage, with what counts for it. [Best] chooses.
//
//   - Ties: names of what a member may be lost with, such as its network. [Common] counts those that two share.
//
//   - Failures: which members do not get copies of what they compute to which others, as the log of a run remembers it.
//
//   - Copy: a stage's state and the line that it crosses.
//
//   - Checkpoint: one with its copies. [Checkpoint.Cadence] says how often one is made, and why: the one rule, by which plans predict
//     and nodes act.
//
//   - Rate: how often members were lost.
//
// The package is pure. Package planner chooses the holders of a plan, swarm/consensus those that take the place of a
// holder that is gone or out of reach, and node/checkpointer keeps the cadence. It imports nothing of the project but planner/plan.
package holders
