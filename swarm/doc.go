// Package swarm connects the nodes of a run: it finds them, lets members in and keeps all
// others out, and gives members streams, gossip, a data plane and link measurements.
//
// # Nouns
//
//   - [Identity]: this node's key; its public half is the peer ID.
//   - [Owner]: the run's key, which only the creator holds. It signs a [Grant]: "whoever
//     has this bearer key may bind so many peers to this run, until then".
//   - [Invite]: a grant, its bearer key, and addresses, as one line of text.
//   - [Capability]: one peer bound to a grant by the bearer key. It is public, and every
//     member can check it alone, with the owner's public key, while the creator is away.
//   - [Swarm]: this node's presence; [Stream] and [Data] are its channels to members.
//
// # Admission
//
// TLS or Noise proves each side's peer ID. The side that dialed then sends its capability
// on /pnode/hello/1 and gets the other's back; only when both were verified do the two
// treat each other as members. Streams, gossip, peer exchange, relaying and the QUIC lanes
// (pnode-data/1, pnode-probe/1) are for members; a stream or connection that comes
// while its peer's verdict is pending waits for it, everything else is reset unread. A peer
// that is no member 10 seconds after connecting is disconnected. What it can reach until
// then is libp2p's own identify (addresses and protocol names) and, on nodes that listen
// beyond loopback, AutoNAT within libp2p's rate limits.
//
// A new node makes its capability of an invite with Redeem, which tells at once when the
// invite has expired, and then greets like any member: [Swarm.Connect] waits for the
// verdict, such as that the invite is used up.
//
// What signatures can prove offline is that the owner allowed n peers until a time, not
// which n came first, nor when. Admit in [Config], which see, counts them; that they came in
// time is checked by Redeem, on the new node itself. A capability could also travel in the
// TLS certificate, and strangers be refused during the handshake; that is not done: the
// greeting works over relays and every transport alike.
//
// # Staying connected
//
// Members tell each other about members: capability and addresses, checked like a
// greeting. Each dials those it knows until MaxMesh are connected, a full mesh in a run of
// up to 64 nodes, and dials again with backoff. Beyond that gossip still reaches everyone
// through the mesh there is. mDNS finds members in the local network. There is no DHT.
//
// # Data plane
//
// [Data] makes QUIC connections of an ALPN of their own on libp2p's UDP port, so that a
// mapped or punched port serves both. On sockets bound to an unspecified address (0.0.0.0)
// their receive windows are raised to 32 MB a stream; libp2p does not borrow sockets bound
// to one address, so on loopback, where a window does not matter, and on a single
// interface its own of 10 MB stay.
//
// # Goroutines
//
// All belong to the swarm's tasks and are waited for by Close: the mesh loop, its dials (at
// most 8 at work), one guard per connected stranger, one greeting per dialed connection,
// one accept loop per QUIC lane and listen address, at most 64 welcomes per lane, the probe
// server and at most 2 probes, one loop per subscription, and the handlers of incoming
// streams. The dials of a Connect, at most 8 at work, end with it. libp2p's and pubsub's own end
// with the host and the context.
//
// # What it refuses
//
// It plans nothing, keeps no files but the two keys, retries no message, and moves no bulk
// over libp2p's own connections. It is called by node, and through the interfaces they
// declare by pipeline/link (Data) and swarm/consensus (streams). It is the only importer of
// libp2p, and imports planner for the vocabulary; never pipeline, checkpoint or kernels.
package swarm
