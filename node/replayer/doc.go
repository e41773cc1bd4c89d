// Package replayer has a lost worker's newest steps computed again by a member that has a copy of its state.
//
// # Nouns
//
//   - Replayer: this node's part. It keeps what the workers here send to others, within a budget of memory, and hands
//     that to the member which the log has replay a lost worker.
//   - Request names what a replaying member wants: the messages of one step to some lost peers. The answer names chunks
//     of memory, which go over the data plane as stored ones do, after everything that trains.
//
// Who replays what, and whether at all, is the leader's to decide, by Kept of every member's heartbeat. The workers'
// steps are package pipeline's, their messages pipeline/replay's.
//
// It starts no goroutines. Packages node and node/generation call it; it never imports node, its other rooms, or pipeline/link.
package replayer
