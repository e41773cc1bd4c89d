// Package handshake carries admission's messages between two connected peers on /pnode/hello/1. The side that
// dialed sends its capability and gets the other's back; when both are verified each is a member for the other.
// A peer that is no member 10 seconds after connecting is disconnected. Greetings work over relays and
// every transport alike.
//
// The decision itself is [admission.Decide]. Goroutines, all in the swarm's tasks: one guard per connected stranger,
// one greeting per dialed connection, at most 64 answers.
//
// It is called by swarm; it imports admission, peerstore and streams.
package handshake
