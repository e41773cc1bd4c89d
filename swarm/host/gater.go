package host

import (
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
)

// gater keeps this node from dialing blocked peers, and others through a relay that gives no sign of life: libp2p tries one
// relay to a peer at a time, and would wait for that one. Nor does it dial through a known peer that is not connected: two such
// peers may relay for each other, and libp2p's dials of both would wait for each other. It lets every dialer in: a peer
// learns from the greeting whether it is a member or was removed from the run.
type gater struct {
	peers *admission.Peers
	known Known
}

var _ connmgr.ConnectionGater = gater{}

func (g gater) InterceptPeerDial(p peer.ID) bool                                { return !g.peers.Blocked(p) }
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool                     { return true }
func (g gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// InterceptAddrDial keeps an address from being dialed that leads through a relay which is silent, or known and not connected.
func (g gater) InterceptAddrDial(_ peer.ID, a ma.Multiaddr) bool {
	relay, through := RelayOf(a)
	return !through || !g.peers.Silent(relay) && (g.peers.Member(relay) || g.peers.Pending(relay) || g.known == nil || !g.known.Knows(relay))
}

// RelayOf returns the relay that an address leads through.
func RelayOf(a ma.Multiaddr) (peer.ID, bool) {
	at, circuit := ma.SplitFunc(a, func(c ma.Component) bool { return c.Protocol().Code == ma.P_CIRCUIT })
	if len(circuit) == 0 {
		return "", false
	}
	id, err := peer.IDFromP2PAddr(at)
	return id, err == nil
}

// InterceptSecured lets in a blocked peer that dialed: a connection that is cut off would tell it nothing, and it
// would dial again.
func (g gater) InterceptSecured(d network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return d == network.DirInbound || !g.peers.Blocked(p)
}
