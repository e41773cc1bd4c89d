// Package link is the data plane between the workers of a run: QUIC connections between
// peers that have something to say to each other, up to 16 for each pair, and on them the
// messages of one generation, each of which arrives exactly once or its peer is lost.
//
// Nouns:
//
//   - Network: how connections are made and admitted; the swarm is one, Emulated another.
//   - Endpoint: this node's end of all connections. It outlives generations.
//   - Session: the messages of one generation. Send queues, Receive waits for a tag.
//   - Outbox: messages for one peer and class, kept until the peer has acknowledged them.
//   - Stripe: a connection as a session uses it; lane: one of its streams.
//   - Inflow and inbox: messages being put together, and those not yet received.
//   - Chunk service: ServeChunks and Fetch, outside any generation.
//   - Emulated: peers on an emulated network, in real time or in a testing/synctest bubble.
//
// # The way of a message
//
// Send numbers a message within its peer and class and puts it into the outbox. Stripes
// take it in pieces of 32 KiB, each as fast as its congestion window allows, so that the
// pieces of a large message travel side by side. Each piece names its message; the
// receiver's inflow lets messages into the inbox in the order of their numbers, copies
// pieces to their places, drops those that it has, and acknowledges on each lane how many
// it has taken in.
//
// A connection that breaks gives the pieces back that were not acknowledged on it, and
// they are sent again over another one, first. So no message is lost while both
// endpoints live and hold their session, and none is received twice. A lane carries its
// pieces in ascending order; for pieces that were given back a new lane is opened, so that a
// message which the receiver has no room for never stands before one that it waits for.
//
// Messages of a class come out by tag as they are complete: with several stripes a small
// one may be complete before a large one that was sent earlier.
//
// # Stripes
//
// A congestion window belongs to a connection, and halves when a packet is lost: at 100
// Mbit/s, 40 ms and 0.5% loss one connection carries 6% of the line, 16 carry over 90%. How
// many are used is found by trial (steer.go) from what was acknowledged while something was
// under way, and kept for the next session; more are tried only while messages wait for windows
// and not for the line. Each side chooses for what it sends and dials what it lacks; both use
// all connections that there are, up to the number that they chose.
// What those of a peer get through while messages queue is measured (queued.go): windows leave
// less than the line's rate for long.
// Session.Warm opens the windows of an edge, in both directions, before its first message goes.
//
// # Who goes first
//
// Streams have priorities: control, then activations and gradients, then reductions, then
// chunks, then what warms. That orders what a connection has not sent. What it has sent
// stands in the line's queue, and bulk that fills it would hold up everything behind: on a
// line of 100 Mbit/s that holds 100 ms a control message took 105 ms beside a running Fetch,
// 20 ms of it the line's. So while messages are exchanged chunks are sent at the rate that
// keeps that queue short (polite.go), and the message takes 21 ms.
//
// # Down, or dead
//
// A connection on which nothing has come for Options.ConnTimeout, or for two heartbeats while
// others to the same peer are alive, is closed and dialled again, with pauses of 0.1 s to 1 s, by both ends: two connections that come of it do no
// harm. Heartbeats go over each connection once a second. What a silence means is not
// guessed:
//
//   - The network is down, or the host is: nothing answers. The peer is lost after
//     Options.PeerTimeout (15 s), before that everything resumes by itself.
//   - The process has ended, killed or crashed, while its host lives: the host answers that
//     nobody listens (Refuser). Asked before each dial but the first; after two such answers
//     the peer is lost, some 5 s after its end.
//   - The process was started again: each stream names the life (wire.Boot) of the endpoint
//     that opened it and of the one it is meant for. A new life has nothing of what was sent
//     to the old one: the peer is lost at once.
//   - The peer has closed its endpoint: it says so, and is lost at once.
//   - The peer has closed its session: it says that it reads no more, and once everything that
//     it sent has been acknowledged, or CloseTimeout is over, that nothing more comes. Send and
//     then Receive fail with ErrLeft. It is lost only when it has been silent for
//     Options.PeerTimeout and has not gone on to a newer generation.
//
// The planner's own rule (node/decide.go) has the same signs and times: a member is silent
// for 5 s before its host is asked, and for 15 s before silence alone is enough.
//
// The peer with the lower ID dials when a session begins, the other one a moment later if
// nothing has come; Fetch dials when there is no connection.
//
// # Bounds
//
// An outbox for each peer and class holds what is not acknowledged (Send blocks when it is
// full), an inbox for each peer and class what is not received: both in bytes and in messages,
// since an empty message takes memory too. A message that does not fit is not read, which
// stops its class through QUIC's flow control; a message that somebody already waits for
// always fits, and so does one that finds the inbox empty. An inflow keeps track of as many
// pieces as fill an inbox, whatever becomes of their messages. What two peers
// may have under way to each other in both directions must fit in outbox and inbox
// together, or both can end up waiting for room: Options.QueueBytes, InboxBytes and their
// Frames have to hold the schedule's micro-batches in flight. Messages of one class are to be sent in the
// order in which the receiver needs them.
//
// A class never waits for another one (see wire.Class): each has lanes of its own, and a
// connection's window room for those of all (Config). Streams
// of a newer generation than the session's are parked unread, a bounded number for each
// peer; streams of an older one are refused. A stream whose bytes cannot be decoded, or a
// message whose checksum does not match, closes the connection with the reason, and the
// peer is lost. A peer that answers but has not opened its session yet is waited for
// without limit.
//
// # Goroutines, and who waits for them
//
// Endpoint.Run waits for its accept loop, one stream-accepting loop for each connection and
// one goroutine for each stream that is being opened or answers Fetch. Session.Close waits
// for one goroutine for each peer (remote.run), one that dials, one while its edge is
// warmed, for each stripe one that waits for a sender of heartbeats, one for each class and
// one that warms it, one reader of acknowledgements for each lane, and for each incoming lane
// a reader and a sender of acknowledgements. A socket made by Shaped has one that sends what
// is due; its Close waits for it.
//
// The package refuses to admit peers (the Network has done it), to verify chunks (the
// caller's store function does) and to decide what a lost peer means (the node does). It
// is called by node; pipeline uses a Session through an interface of its own. It never
// imports libp2p.
package link
