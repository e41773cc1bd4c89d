// Package memory makes a [transport.Conn] between two hosts of one process: bytes take their time on simulated lines, and
// no packet, key or handshake is computed. Tests of many whole nodes run on it, mostly in virtual time.
//
// [Path] is the way of bytes from one host to another, [Rate] what a host's line carries, [Conn] one end of a connection that
// [Pair] makes, [Stream] one end of a stream.
//
// A connection behaves as one of QUIC does, seen from its ends:
//
//   - Bytes come in the order of urgencies, each piece after the latency of the path and in its turn on both hosts' lines.
//   - What a path loses is sent again after a pause that doubles.
//   - An end that hears nothing for 30 s ends in silence. While nothing is sent, ends are heard every 5 s.
//   - An end whose peer has forgotten the connection learns so by what it sends.
//   - A stream takes 3 MiB beyond what was read, and each end opens 256 streams.
//
// Two things are simpler: the writer knows at once what the reader has read, and a lost piece holds up all that follow it.
//
// Goroutines: none but those of timers, which end with the connection. It is imported by swarm/virtual and by tests.
package memory
