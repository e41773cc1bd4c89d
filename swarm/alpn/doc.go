// Package alpn makes QUIC connections of ALPNs of their own between members, on libp2p's UDP sockets: bulk on
// libp2p's own connections would hold up control. A port that is mapped or punched for libp2p serves
// these too. What runs on the connections belongs to their users: pipeline/link (pnode-data/1) and
// package probe (pnode-probe/1).
//
// It also asks machines whether a port is closed: [Transport.Refuses], [NobodyListens].
//
// A connection of a stranger is closed before anything is read from it.
//
// Goroutines, all in the swarm's tasks: one accept loop per listen address, at most 64 connections that wait for
// their peer's admission (4 of one peer), one for each member's connection until it is accepted, at most 64 of a
// member, and the dials of a Dial, which end with it.
//
// It is called by swarm and probe. It imports admission and host.
package alpn
