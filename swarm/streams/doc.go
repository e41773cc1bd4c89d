// Package streams carries control messages between members on libp2p's own connections: [Streams] opens and
// answers two-way streams by protocol, and [WriteMessage] and [ReadMessage] frame one message on them.
// Only members get through. Bulk does not belong here: package alpn has connections for it.
//
// It is called by swarm, mesh, handshake and topics; node and consensus see [Stream]. It imports admission for the
// members and libp2p.
package streams
