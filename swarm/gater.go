package swarm

import (
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// gater keeps this node from dialing blocked peers. Whether a peer is a member, or was
// removed from the run, it learns from the greeting: so all are let through to that.
type gater struct{ door *door }

var _ connmgr.ConnectionGater = gater{}

func (g gater) InterceptPeerDial(p peer.ID) bool                                { return !g.door.isBlocked(p) }
func (g gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool                    { return true }
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool                     { return true }
func (g gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// InterceptSecured lets a blocked peer in that dialed: a connection that is cut off tells it
// nothing, and it would dial again.
func (g gater) InterceptSecured(d network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return d == network.DirInbound || !g.door.isBlocked(p)
}
