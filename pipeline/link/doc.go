// Package link is the data plane between the workers of a run: one QUIC connection for
// each pair of peers that have something to say to each other, and on it one stream for
// each generation, direction and class of frames.
//
// Nouns:
//
//   - Network: how connections are made and admitted; the swarm is one, Emulated another.
//   - Endpoint: this node's end of all connections. It outlives generations.
//   - Session: the messages of one generation. Send queues, Receive waits for a tag.
//   - Inbox: messages that have come and are not yet received.
//   - Chunk service: ServeChunks and Fetch, outside any generation.
//   - Emulated: peers on an emulated network, in real time or in a testing/synctest bubble.
//
// Connections: the peer with the lower ID dials when a session begins, the other one only
// when nothing has come after a quarter of Options.PeerTimeout; Fetch dials when there is
// no connection. If both dial at once the two connections live on and the newer is used
// for new streams.
//
// Streams: a class never waits for another one (see wire.Class). Streams of a newer
// generation than the session's are parked unread, a bounded number for each peer;
// streams of an older one are refused. A stream whose bytes cannot be decoded, or whose
// checksum does not match, closes its connection with the reason.
//
// Bounds: a queue for each peer and class on the sending side (Send blocks when it is
// full), an inbox for each peer and class on the receiving side. A stream whose message
// does not fit is not read, which stops its sender through QUIC's flow control; a message
// that somebody already waits for always fits, and so does one that finds the inbox empty.
// What two peers may have under way to each other in both directions must fit in queue
// and inbox together, or both can end up waiting for room: Options.QueueBytes and
// InboxBytes have to hold the schedule's micro-batches in flight. Messages of one class
// are to be sent in the order in which the receiver needs them.
//
// What it does not do yet: a connection that breaks during a session is not resumed,
// because messages under way are lost with it. The peer is reported by Lost, Send and
// Receive fail for it, and the generation has to be replaced. Re-dialling happens at the
// beginning of a session only. A peer that answers but has not opened its session yet is
// waited for without limit.
//
// Goroutines, and who waits for them: Endpoint.Run waits for its accept loop, one
// stream-accepting loop for each connection and one goroutine for each stream that is
// being opened or answers Fetch. Session.Close waits for one watcher (heartbeats) for each
// peer, one sender for each peer and class and one reader for each incoming stream.
//
// The package refuses to admit peers (the Network has done it), to verify chunks (the
// caller's store function does) and to decide what a lost peer means (the node does). It
// is called by node; pipeline uses a Session through an interface of its own. It never
// imports libp2p.
package link
