// Package link is the data plane between the workers of a run: up to 16 connections for each direction between two
// peers that exchange messages, over QUIC or whatever else leads from one to the other. Each message of a generation
// arrives exactly once, or its peer is lost.
//
// Nouns:
//
//   - Network makes and admits connections; the swarm is one, Emulated another.
//   - Endpoint owns this node's end of all connections. It outlives generations.
//   - Session carries the messages of one generation. Send queues, Receive waits for a tag. A remote is
//     one peer of it, a connection one that it sends over, an outStream one stream of that.
//   - outbox keeps messages for one peer and class until the peer has acknowledged them; inflow puts
//     messages together, inbox holds them until they are received.
//   - ServeChunks and Fetch serve stored chunks outside of any generation.
//   - NewNetemConn and Emulated emulate links by their LinkConditions, in real time or in a
//     testing/synctest bubble.
//
// # The way of a message
//
// Send numbers a message within its peer and class and puts it into the outbox. Connections take it in
// pieces of 32 KiB, each as fast as its congestion window allows, so that the pieces of a large message
// travel side by side. Each piece names its message. The receiver's inflow lets messages into the inbox
// in the order of their numbers, copies pieces to their places, drops those that it has, and
// acknowledges on each stream how many it has taken in.
//
// When a connection breaks, the pieces that were not acknowledged on it are given back and sent again
// over another one, first. So no message is lost while both endpoints live and hold their session, and
// none is received twice. A stream carries its pieces in ascending order; for pieces that were given
// back a new one is opened, so that a message which the receiver has no room for never stands before one
// that it waits for. Messages of a class come out by tag as they are complete.
//
// # How many connections
//
// A congestion window belongs to a connection, and halves when a packet is lost: at 100 Mbit/s, 40 ms and
// 0.5% loss one connection carries 6% of the line, 16 carry over 90%. The tuner finds their number by
// trial from what was acknowledged while something was under way, and the next session begins with it.
// More are tried only while messages wait for windows and not for the line. Each side chooses for what
// it sends and dials what it lacks; both use all connections of their transport that there are, up to the number that
// they chose. The queueMeter measures what those of a peer get through while messages queue: windows leave
// less than the line's rate for long. Session.Warm opens the windows before the first message goes.
//
// # Over which transport
//
// Where the Network knows several transports to a peer, the first connection is of its choice, and the tuner finds out
// which one carries most: some networks slow UDP down or lose it, others TCP. While messages wait most of the time it
// tries another transport now and then, as it tries another number of connections, and keeps it if goodput grows by more
// than a tenth. Each direction has its own. Connections of a transport that a direction has left stay while the other
// direction uses them, and are closed by the end that made them when they have carried heartbeats alone for 30 s. So are
// connections beyond the number that is in use.
//
// Where nothing has come over any connection for two heartbeats, another one is made, over whatever the Network can
// reach the peer; those that are silent are then closed. So a transport that goes dead is replaced by another that works
// within ConnTimeout, and what was under way goes over that. It is tried again after a rest that doubles. What stands
// for long on a transport that hardly moves any more is taken back, too.
//
// # Who goes first
//
// Streams have priorities: control, activations and gradients, reductions, chunks, warming. That orders
// what a connection has not sent. What it has sent stands in the line's queue, and bulk that fills it
// would hold up everything after it: on a line of 100 Mbit/s that holds 100 ms a control message took
// 105 ms concurrently with a Fetch, 20 ms of it the line's. So while messages are exchanged the pacer
// sends chunks at the rate that keeps that queue short, and the message takes 21 ms.
//
// # Down, or dead
//
// A connection on which nothing has come for Options.ConnTimeout, or for two heartbeats while others to
// the same peer are alive, is closed and dialled again by both ends, with pauses of 0.1 s to 1 s; two
// connections that come of it do no harm. Heartbeats go over each connection once a second. What a
// silence means is not guessed:
//
//   - The network is down, or the host is: nothing answers. The peer is lost when it was silent for longer than it
//     ever is, as the liveness of its connections has learned, between Options.LeastTimeout and Options.PeerTimeout (15 s).
//     Before that everything resumes by itself. In the time in which this process slept nobody was silent.
//   - The process has ended while its host lives: the host answers that nobody listens (Refuser). Asked
//     before each dial but the first; after two such answers the peer is lost, some 5 s after its end.
//     That takes a peer that was reached over QUIC or TCP at an address which it announces. One that was
//     reached over WebSocket or through a relay only, or has only come in over TCP itself, is lost after
//     Options.PeerTimeout, since nobody can say that it does not listen.
//     Where the process was watched (Endpoint.PeerEnded, swarm/lifeline) it is lost at once, and the connections with it
//     are closed, so that fetches from it fail and its next process is dialled anew.
//   - The process was started again: each stream names the process epoch (wire.ProcessEpoch) of the endpoint that
//     opened it and of the one it is meant for. A new process has nothing of what was sent to the old
//     one: the peer is lost at once.
//   - The peer has closed its endpoint: it says so, and is lost at once.
//   - The peer has closed its session: it says that it reads no more, and once everything that it sent
//     has been acknowledged, or CloseTimeout is over, that nothing more comes. Send and then Receive fail
//     with ErrLeft. It is lost only when it has been silent for Options.PeerTimeout and has not gone on
//     to a newer generation.
//
// The leader's own rule has the same signs: a member is silent for 5 s before its host is asked, and for
// 8 to 15 s, as package silence learns, before silence alone is enough. The peer with the lower ID dials when a session
// begins, the other one a moment later if nothing has come; Fetch dials when there is no connection.
//
// # In a lost peer's place
//
// For a peer that Rules call replaceable, sends and receives do not fail when it is lost. They wait until Session.Substitute names who goes
// on in its place, or Session.Drop gives it up. A tag names one stage that sends and one that receives. So the substitute's
// messages need no other name: what the plan has the lost peer send is booked as that peer's, and refused like any duplicate
// where it had sent it already. A message whose substitute is not known here yet is not read until it is, for 10 s at most; then
// its sender is lost, without a fault, since it may be this node's log that lags. What the lost peer itself still sends is not read any more, so Session.LastCommit returns
// the newest commit of it that can count here. A substitute may get the messages of several
// steps again, which wait in the outboxes of those who keep them anyway: its inbox has the bounds below, and takes what is waited for first.
//
// # Bounds
//
// An outbox holds what is not acknowledged (Send blocks when it is full), an inbox what is not received:
// for each peer and class, in bytes and in messages, since an empty message takes memory too. A message
// that does not fit is not read, which stops its class through QUIC's flow control. A message that
// somebody already waits for always fits, and so does one that finds the inbox empty. An inflow keeps
// track of as many pieces as fill an inbox. What two peers may have under way to each other in both
// directions must fit in outbox and inbox together, or both can end up waiting for room:
// Options.QueueBytes, InboxBytes and their Frames have to hold the schedule's micro-batches in flight.
// Messages of one class are to be sent in the order in which the receiver needs them.
//
// A class never waits for another one (wire.Class): each has streams of its own, and a connection's
// window room for those of all (Config). Streams of a newer generation than the session's are parked
// unread, a bounded number for each peer; streams of an older one are refused. A stream whose bytes
// cannot be decoded, a message whose checksum does not match, or one that the plan does not have (Rules.Expect)
// closes the connection with the reason, before there is room for it, and the peer is lost with a fault of
// its own. A peer that answers but has not opened its session yet is waited for without limit: the workers
// know what is late, and Session.Moved tells them what is only slow.
//
// # Goroutines, and who waits for them
//
// Endpoint.Run waits for one stream-accepting loop for each connection and one goroutine for each stream
// that is being opened or answers Fetch. Session.Close waits for one goroutine for each peer
// (remote.run), one that dials, one while its connections are warmed; for each connection one that waits
// for a sender of heartbeats, one for each class and one that warms it; one reader of acknowledgements
// for each outStream, and for each incoming stream a reader and a sender of acknowledgements. A socket
// made by NewNetemConn has one that sends what is due; its Close waits for it.
//
// The package refuses to admit peers (the Network has done it), to verify chunks (the caller's store
// function does) and to decide what a lost peer means (the node does). Package node calls it; pipeline
// uses a Session through an interface of its own. It never imports libp2p.
package link
