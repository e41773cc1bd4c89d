// Package relay carries data between two members that have no path to each other, through a third that both reach. The
// third one, the relay, copies bytes between two connections at a bounded rate. It cannot read them: the two ends speak
// TLS with each other inside (package alpn). It learns who talks to whom, when and how much.
//
// A member A that wants to reach B asks a relay R by a control stream ([AskProtocol]). R calls B by another one
// (/pnode/relay-call/1), if it is connected to B directly, and gives each end a token of its own: 16 random bytes, good
// once, for that end, for 10 s. Both dial R on ALPN pnode-relay/1, show their tokens, and R copies. What R holds for
// strangers is nothing, since only members can ask; what members may ask for is bounded (serve.go).
//
// Goroutines, all in the swarm's tasks: one that accepts connections, one for each accepted connection until its token is
// read, two for each relayed connection, one for each call that is answered. Control streams have their handlers.
//
// It is called by swarm. It imports streams for framing and transport; libp2p it does not know.
package relay
