// Package departures remembers when members left a run or were lost, by a clock that all nodes read alike.
//
// How often checkpoints are made, and how long a plan lasts, follows from how often members go. Nodes come and go
// themselves, and a process that was just started has seen nothing. So the log's state carries what all of them saw.
//
// # Nouns
//
//   - Clock: the time for which a run's log has been written.
//   - Departure: one member that went, and when.
//   - History: the clock, how many members were lost, and the newest departures.
//   - Watch: a clock read on one machine, between two entries.
//
// # Why a time, and not steps
//
// Steps stand while a lost member is answered, and how many were made is known at checkpoints alone: too coarse for
// saying how often to make these. Each entry of the log carries the time at which its leader appended it, which raft
// replicates. All nodes have the same, after a restart too, and no entry needs a field for it.
//
// A leader's clock may be wrong, or the leader may lie. Of the time between two entries an hour counts at most, and a
// minute where another term begins, since another machine's clock is read then. Time never goes back. A wrong
// clock can move no more than the time between checkpoints, and that within its bounds.
//
// The package is pure. Package swarm/consensus keeps the history, node/checkpointer, node/leader and planner/simulate read it. It imports
// nothing of the project but planner/plan and planner/holders.
package departures
