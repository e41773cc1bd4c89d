// Package chaos trains on real processes of this machine, breaks them by a seeded schedule, and compares the result with a run
// in which nothing broke: what `pnode chaos` does.
//
// # Nouns
//
//   - Fault: what happens to which node when, and how long the node is away. Schedule makes all of a seed; it is pure.
//   - network: where the nodes are: on loopback, or each on a machine of its own, which is a network namespace with a line.
//   - process: one start of a node, in its folder, with its steps as they come.
//   - cloud: a metadata service for each node, which says that its machine is taken away.
//   - absence: a fault from its begin until its node takes part again.
//   - fleet: the nodes that are to run, who is away, and when the newest step came.
//   - reference: the run without faults, of one process that takes all cores. Its losses and weights must be the same to
//     the bit, however the other run was cut and mended.
//   - Report: what came of it.
//
// # Rules
//
// A fault that leaves no way on by design is not injected: at most a minority of voters is away at a time, the
// founder's folder is never deleted or damaged (it holds the key of the run's owner), and a fault waits until the ones before are
// mended and steps are committed again, but for as many as may be away at once. A node that ends without having been told to is a
// failure, and so is one that leaves and does not end.
//
// # Goroutines
//
// Run is one loop. Each process has one goroutine that reads its steps and waits for its end, and two that hear of its
// interruptions; each cloud has those of its server. All processes end when their standard inputs do, so that none outlives this one.
//
// The package looks at runs from the outside: through processes, node/api, node/ledger and stopped stores. cmd/pnode calls it.
// It alone uses swarm/netlab outside of tests.
package chaos
