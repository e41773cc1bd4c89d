// Package swarm is a node's presence in a run: it finds the other nodes, lets members in and keeps all others
// out, and gives members streams, topics, a data plane and link measurements. [Swarm] assembles these from
// the rooms below; each has its own documentation.
//
// # Rooms
//
//   - admission: keys, invites, capabilities, and the decision on who may come in.
//   - bearer: what the holder of an invite signs.
//   - handshake: carries that decision's messages between two connected peers.
//   - pairing: lets machines of the local network ask an owner's node for an invite, under the eyes of people.
//   - peerstore: peers, their addresses, and when to dial each.
//   - mesh: dials, asks members for others, searches the local network.
//   - host: the libp2p host, its shared sockets, limits and relays. listen: the addresses that it listens on.
//   - places: shares the room for strangers among the addresses that they come from.
//   - streams: control messages between two members. topics: small messages to all of them.
//   - transport: what such a connection is to its users, whatever carries it.
//   - alpn: connections of an ALPN of their own, for pipeline/link and for probe, which measures links.
//   - cert: the certificates of all TLS handshakes, which are good at all times.
//   - hole: data within connections that a hole was punched for.
//   - choice: which transport to a member is tried first, and why.
//   - tasks: the goroutines of all of these. version: the refusal of unknown versions.
//   - consensus: the replicated state of the run, over streams. twofold: small files that are kept twice.
//
// # The way in
//
// A new node makes its capability of an invite ([admission.Invite.Redeem]), starts a swarm ([New]) and connects to a
// member ([Swarm.Connect]). TLS or Noise proves each side's peer ID. The side that dialed sends its
// capability and gets the other's back (handshake); each side decides for itself ([admission.Decide]). Only
// peers that were admitted get streams, topics, peer exchange, relaying and QUIC connections. What comes
// while its peer's verdict is pending waits for it; everything else is reset unread. What a stranger reaches in its
// first 10 seconds is libp2p's own identify (addresses and protocol names) and, on nodes that listen beyond
// loopback, AutoNAT within libp2p's rate limits; from the local network also pairing, on a node that was told so. What strangers may cost before they are admitted is bounded in
// host (connections, windows, streams), handshake (greetings) and alpn (connections for data).
//
// # Versions
//
// Each format has a version of its own. The text after the last slash of a protocol is one (/pnode/hello/1,
// pnode-data/1), the first byte of a greeting, a grant, an invite, a log entry, a log record and a snapshot is
// another. The rules:
//
//   - A version is raised when a program of the last one would misread the new bytes. What today's
//     programs write keeps its version for good.
//   - An unknown version is refused, never guessed. The error wraps version.Err, says which version each end
//     speaks, and which end needs another release ([pnode/swarm/version.Unknown]).
//   - A patch release (v0.3.1 after v0.3.0) raises no version: its nodes join a run of the others. A minor
//     release may: then all nodes of a run are started again with it. A log, a folder or a checkpoint that
//     an older release wrote is read by the next minor release.
//   - Protocols may exist in two versions in one program during a change; the higher common one is spoken.
//
// # Goroutines
//
// All belong to the swarm's tasks and are waited for by [Swarm.Close]; the rooms list theirs. libp2p's and pubsub's own
// end with the host and the context.
//
// # What it refuses
//
// It plans nothing, keeps no files but the two keys, retries no message, and moves no bulk over libp2p's own
// connections. It is called by node, and through the interfaces they declare by pipeline/link (Swarm.Data) and
// consensus (streams). It and its rooms are the only importers of libp2p. It imports plan for the vocabulary;
// never pipeline, checkpoint or kernels.
package swarm
