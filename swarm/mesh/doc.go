// Package mesh keeps a node connected to the members of its run. Members tell each other about members
// (/pnode/peers/1); each dials those it knows until enough are connected, a full mesh in a run of up to
// 64 nodes, and dials again with backoff. mDNS finds members in the local network. There is no DHT.
//
// Goroutines, all in the swarm's tasks: the loop of [Mesh.Run], its dials (at most 8 at work) and questions. The
// dials of a [Mesh.Connect] end with it.
//
// Who is a member is decided elsewhere: it dials, and waits for the verdict in admission.Peers. It is called by swarm;
// it imports admission, peerstore and streams.
package mesh
