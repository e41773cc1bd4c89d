// Package pairing lets a newcomer in the local network ask an owner's node for an invite, where people can see both screens.
//
// A run announces itself by mDNS ([Service]), which says no more than addresses. A newcomer that finds it ([Find]) asks over a connection on which
// each end has proved its peer ID ([Ask]), and both show a code of six digits. Whoever sees the same code on both tells the owner's node so
// ([Service.Admit]), which then makes an invite for one node. From there on the newcomer joins as anybody.
//
// mDNS proves nothing: somebody in between may announce itself as the run, and ask the run as the newcomer. The code shows that, as the short
// authentication string of ZRTP does (RFC 6189, section 4.4.1.1). It is a hash over both peer IDs, both names, the run, and a random number of each
// end. The newcomer commits to its number by a hash before it sees the owner's, and reveals it after. Who is in between has to fix its peer IDs and
// its own numbers before it knows what they come to: its two codes are equal once in a million tries, and each try is a request that
// people see.
//
// A request of a newcomer, on /pnode/pairing/1, is one stream:
//
//	newcomer -> owner   who are you              owner -> newcomer   run, name
//	newcomer -> owner   commitment, own name     owner -> newcomer   number
//	newcomer -> owner   own number               owner -> newcomer   waiting
//	newcomer -> owner   what came of it?         owner -> newcomer   waiting, refused and why, or the invite
//
// The last line is a stream of its own, once a second: a stranger's connection is ended after ten seconds. Whoever does not open a stream with one of
// these messages is reset without an answer. At most 8 requests wait, 2 of one address, each for 5 minutes, or 15 s where the newcomer is
// silent. 32 begin within 5 minutes, so that whoever is in between succeeds in them with a chance of 0.0032%. A code that nobody waits with refuses all
// who wait.
//
// It is called by swarm; it imports admission, host, places, streams, tasks and libp2p.
package pairing
