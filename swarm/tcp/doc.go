// Package tcp is libp2p's transport over TCP, on a port that it shares with the data plane. What a connection carries
// shows in its first bytes: libp2p's negotiation, or a TLS ClientHello whose ALPN says who serves it.
//
// A connection has 5 s to say what it carries. It takes a place of libp2p's resource manager from the moment
// that it is accepted, as all connections of libp2p do, and gives it back when it is closed.
//
// Goroutines, all in the swarm's tasks: one accept loop for each listen address, and one for each connection until it
// is handed on.
//
// It is called by host and alpn.
package tcp
