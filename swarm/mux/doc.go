// Package mux makes a [transport.Conn] of one reliable stream of bytes: TLS over TCP, over a WebSocket, or over a
// stream that another member forwards. So the data plane runs on it as it runs on QUIC.
//
// # On the line
//
// Each end begins with a preface of 8 bytes and goes on with frames: kind (1 byte), length (3), stream (4), payload.
// Numbers are big-endian. The end that dialed opens streams 1, 3, 5, ..., the other one 2, 4, 6, ..., each by its first
// frame. A stream's two directions end by END or RESET; when both have, its place is free. Frames are written in
// records of at most 16 KiB, one record of TLS.
//
//	DATA    bytes of a stream, at most 16,376
//	END     the end of a direction, after its last byte
//	RESET   a direction's end at once, with a code (CancelWrite)
//	STOP    asks the peer for RESET, with a code (CancelRead)
//	WINDOW  how many bytes of a stream, or on stream 0 of all, may be sent since the beginning
//	PING    asks for PONG
//	PONG    the bytes that this end has read from the line, and how long the PING has waited for its answer, in µs
//	CLOSE   the end of the connection, with a code and a reason of its user
//	FAULT   the end of the connection by this package, with a reason
//
// # Flow control
//
// A stream takes 3 MiB, a connection 10 MiB beyond what was read; the windows grow to 32 and 104 MiB while they are read
// faster than they can be renewed, as quic-go's do. A stream that nobody reads stops no other one before the
// connection's window is full. A peer that sends more, opens more than 256 streams or breaks the protocol in another way
// ends the connection, before anything is allocated for it.
//
// # Who goes first
//
// Control frames go first, then streams by urgency; those of one urgency take turns. What is to be sent stays here until
// the socket takes it: of a socket of TCP on Linux and macOS this package bounds what the kernel has not sent yet to
// what the line carries in 5 ms. Where there is no such socket directly below (a proxy, a relay, Windows), it bounds
// what is on the way: to two round trips without a queue and 100 ms at the rate that arrives.
//
// # Round trips
//
// PING goes out at most every 10 ms and twice in a round trip while data is sent, every second while there are streams,
// and answers go before all data. So a middle box sees traffic every second, and a peer from which nothing comes for 10 s
// is given up. Without streams nothing is sent, and the connection ends after 10 s of that, as QUIC's do.
//
// # Goroutines
//
// A connection has two, a reader and a writer. Both end soon after the connection has: at most 2 s after Close, for which
// time what the peer still sends is read so that the kernel does not drop CLOSE. [Conn.Done] tells when.
//
// The caller has authenticated both ends. The package is called by swarm/alpn and imports transport and planner/plan.
package mux
