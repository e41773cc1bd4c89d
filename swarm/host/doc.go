// Package host starts the libp2p host of a node: its sockets, limits, relays and ways through NATs. The UDP
// sockets are shared with the connections of package alpn, so that a port that is mapped or punched for
// one serves both.
//
// On sockets bound to an unspecified address (0.0.0.0) the receive windows are raised to 32 MB a stream. libp2p
// does not borrow sockets bound to one address: there its own windows of 10 MB stay. Relays carry control
// traffic of members only.
//
// It admits nobody and speaks no protocol of a run. It is called by swarm, and imports admission to know the
// members.
package host
