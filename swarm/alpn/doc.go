// Package alpn makes connections of ALPNs of their own between members, on the ports of libp2p: bulk on libp2p's own
// connections would hold up control. They run over QUIC on libp2p's UDP sockets, where a port that is mapped or punched
// for libp2p serves these too; over TCP and WebSockets on its TCP ports; and over whatever stream of bytes Client and
// Serve are given. On streams of bytes both ends prove their peer ID by TLS, and package mux makes streams of them. What
// runs on the connections belongs to their users: pipeline/link (pnode-data/1) and package probe (pnode-probe/1).
//
// Dials ask package choice which transport to try first, and tell it what came of it.
//
// It also asks machines whether a port is closed: [Transport.Refuses], [NobodyListens].
//
// A connection of a stranger is closed after its handshake, before anything is read from it.
//
// Goroutines, all in the swarm's tasks: one accept loop per UDP address, one for each handshake over TCP, at most 64 connections that wait for
// their peer's admission (4 of one peer), one for each member's connection until it is accepted, at most 64 of a
// member, and the dials of a Dial: those over other transports go on for 5 s after it.
//
// It is called by swarm and probe. It imports admission and host.
package alpn
