// Package wire is the byte form of everything that travels between the workers of a run:
// frames, the header that opens a stream, the payloads of the control messages, the
// request for stored chunks, and the tensor codec.
//
// Nouns:
//
//   - Kind says what a frame carries; Class on which stream a kind travels.
//   - Tag names a message of a generation and step; it is comparable and serves as the key under
//     which the receiver waits for it.
//   - Frame: a tag and its payload; Header: a frame's fixed-size front.
//   - Piece: a part of a frame on one stream.
//   - Open: the first bytes of a stream, with the process epoch of the endpoint that opens it.
//   - Codec: the form of a boundary tensor's elements; Noise: the numbers that round them.
//   - Report, Commit: the two payloads of the agreement on a step; OuterReport and a list of hashes: those of a round of replicas with
//     local steps.
//
// Everything is little-endian and has exactly one encoding. The checksum of a frame is a
// CRC-32C (Castagnoli) over header and payload. Every decoder checks a length against its
// bound before anything of that length is allocated, accepts no trailing bytes, and is
// fuzzed.
//
// The package is pure: it imports nothing that does I/O, reads no clock, starts no
// goroutine and keeps no state. It refuses to guess: a frame of another version, of an
// unknown kind or with a wrong checksum is an error. pipeline, pipeline/link and
// pipeline/collective call it.
package wire
