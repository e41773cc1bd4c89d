package swarm

import (
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// gater refuses connections with blocked peers before a byte of any protocol. Whether an
// unknown peer is a member shows only in its greeting, so all others are let through to it.
type gater struct{ door *door }

var _ connmgr.ConnectionGater = gater{}

func (g gater) InterceptPeerDial(p peer.ID) bool                                { return !g.door.isBlocked(p) }
func (g gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool                    { return true }
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool                     { return true }
func (g gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

func (g gater) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return !g.door.isBlocked(p)
}
