// Package handshake carries admission's messages between two connected peers on /pnode/hello/1. The side that
// dialed sends its capability and gets the other's back; when both are verified each is a member for the other.
// A peer that is no member 10 seconds after connecting is disconnected. Greetings work over relays and
// every transport alike.
//
// A stranger has 2 seconds to send its hello. Of a peer one greeting is answered at a time, of an address 8, of all
// strangers 64; another 64 places are kept for peers that are known. Who finds no place asks again.
//
// The decision itself is [admission.Decide]. Goroutines, all in the swarm's tasks: one guard per connected stranger,
// one greeting per dialed connection, at most 128 answers.
//
// It is called by swarm; it imports admission, peerstore, places and streams.
package handshake
