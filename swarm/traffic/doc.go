// Package traffic counts what a node sends and receives on its streams with other members, by what it is for: the run's log, gossip, and the
// rest. That is the control plane: activations and gradients have connections of their own, whose payload package link counts.
//
// # Nouns
//
//   - Meter: the counters of one node. libp2p tells it of each read and write of a stream.
//   - Count: what a kind of messages came to since the node began.
//
// A read or a write costs a few comparisons and two additions. What packets, acknowledgements and encryption add is not counted. Package host gives
// the meter to libp2p; swarm.Swarm.Traffic reads it.
package traffic
