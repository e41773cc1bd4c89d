// Package local runs several node processes on this machine as one run: what
// `pnode train --local N` does.
//
// # Nouns
//
//   - Supervisor: starts the nodes, merges what they report, stops them together.
//   - child: one node process with its folder DIR/node-I and its log.txt in there.
//   - merge: prints each event once, from whichever node reports it first, and the steps
//     in their order.
//
// # Life of a run
//
// Node 0 is `pnode train`; when its API answers it is asked for an invite, and nodes 1 to
// N-1 are `pnode join` with that invite. A child is in its own process group, so that
// Ctrl-C reaches the supervisor alone, which then asks one node to stop the run. Each
// child ends when its standard input does; so none outlives its supervisor, however that
// ends. A node that dies is reported and not started again: going on without it is the
// swarm's work.
//
// # Goroutines
//
// All under Run, which waits for them: launch (once), wait and follow (one each a child),
// end (once, stops the run when the context is done).
//
// The package refuses to look into the run: what it knows it reads from node/api, as any
// other process could. cmd/pnode calls it; it imports node/config, node/api and
// planner's vocabulary.
package local
