// Package probe measures links between members: round trip, jitter and goodput, on a connection of its own
// ALPN, pnode-probe/1, with one stream each. A node serves four probes at once, and each peer once in
// three seconds over each transport.
//
// It tells the connections to a member which transport was the faster one, at the end that probes and at the one that
// answers. It is called by swarm, and imports alpn for the connections.
package probe
