// Package outersteps is the log as a replica with local steps sees it: it tells the log what has come of a round, and the replica's workers what
// the log makes of it.
//
// Nouns:
//
//   - Rounds is a replica's view of the log, which package pipeline/gather asks. Where the replica's coordinator is here it proposes the first
//     plan.Gathered that lacks nothing of a replica which is waited for, and no other one of that round.
//   - Words is what the coordinators here have handed in, for heartbeats: the log hears of a replica once it has all that it waits for, so that the
//     leader learns from these alone who is late. They also say how the newest outer steps were: what was sent, what was waited for, and how far
//     replicas were apart.
//   - Book writes the log's outer steps into the node's ledger.
//
// State.Merged holds the newest outer step alone. That is enough for a replica that is waited for, since the next round cannot be merged
// without its word.
//
// Goroutines: Rounds.Run is one of whoever carries the plan out. Caller: package node/generation; package node puts Words into heartbeats.
package outersteps
