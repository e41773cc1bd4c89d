package host

import (
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
)

// gater keeps this node from dialing blocked peers. It lets every dialer in: a peer learns from the greeting
// whether it is a member or was removed from the run.
type gater struct{ peers *admission.Peers }

var _ connmgr.ConnectionGater = gater{}

func (g gater) InterceptPeerDial(p peer.ID) bool                                { return !g.peers.Blocked(p) }
func (g gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool                    { return true }
func (g gater) InterceptAccept(network.ConnMultiaddrs) bool                     { return true }
func (g gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// InterceptSecured lets in a blocked peer that dialed: a connection that is cut off would tell it nothing, and it
// would dial again.
func (g gater) InterceptSecured(d network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return d == network.DirInbound || !g.peers.Blocked(p)
}
