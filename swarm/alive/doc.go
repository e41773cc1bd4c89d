// Package alive finds control connections that lead nowhere any more and has them replaced: this machine got another
// address, or a NAT on the way forgot or changed its mapping. libp2p by itself notices after 30 s (QUIC) to 40 s
// (TCP); a member is lost to its run after 15 s.
//
// Each member is asked for a sign of life over a stream of its own (/pnode/alive/1), every 2 seconds, less often
// where there are many. One that gives none is dialed anew, beside the connection that there is. Only where that works
// the old connection is closed, and the mesh makes another: an outage of the whole network closes nothing, and the
// connections go on after it.
//
// Goroutines, all in the swarm's tasks: one that watches this machine's addresses, one for each member, and one for each
// member's stream.
//
// It is called by swarm, and imports admission and streams.
package alive
