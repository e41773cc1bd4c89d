package swarm

import (
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"
)

// gater refuses connections with blocked peers before a byte of any protocol; relaying is
// for members. Whether an unknown peer is a member shows only after its greeting, so
// others are let through to it.
type gater struct{ door *door }

var (
	_ connmgr.ConnectionGater = gater{}
	_ relay.ACLFilter         = gater{}
)

func (g gater) InterceptPeerDial(p peer.ID) bool                                { return !g.door.isBlocked(p) }
func (g gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool                    { return true }
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool                     { return true }
func (g gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

func (g gater) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return !g.door.isBlocked(p)
}

func (g gater) AllowReserve(p peer.ID, _ ma.Multiaddr) bool { return g.door.isMember(p) }

func (g gater) AllowConnect(src peer.ID, _ ma.Multiaddr, dest peer.ID) bool {
	return g.door.isMember(src) && g.door.isMember(dest)
}
