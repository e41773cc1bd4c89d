// Package host starts the libp2p host of a node: its sockets, limits, relays and ways through NATs. The UDP
// sockets are shared with the connections of package alpn, so that a port that is mapped or punched for
// one serves both.
//
// Strangers, peers that are not admitted yet, have 128 connections between them, shared by the address they come from
// (strangers.go), 112 KB of windows each (windows.go, muxer.go), and 32 streams. 64 more connections are kept for
// known peers. Members' windows grow: to 32 MB a stream on sockets bound to an unspecified address (0.0.0.0).
// libp2p does not borrow sockets bound to one address: there its own 10 MB are the most. Relays carry control
// traffic of members only.
//
// It admits nobody and speaks no protocol of a run. It is called by swarm, and imports admission to know the
// members.
package host
