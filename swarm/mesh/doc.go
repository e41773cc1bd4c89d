// Package mesh keeps a node connected to the members of its run. Members tell each other about members
// (/pnode/peers/1); each dials those it knows, and dials again with backoff. In a run of up to 64 nodes all are connected. In
// a larger one each node dials those that it works with and a few at random; others are dialed when somebody has something to send. What neither end uses any more is closed where there
// are too many, if the other end agrees (/pnode/part/1). mDNS finds members in the local network. There is no DHT.
//
// Goroutines, all in the swarm's tasks: the loop of [Mesh.Run], its dials (at most 8 at work) and questions. The
// dials of a [Mesh.Connect] end with it.
//
// Who is a member is decided elsewhere: it dials, and waits for the verdict in admission.Peers. It is called by swarm;
// it imports admission, peerstore and streams.
package mesh
