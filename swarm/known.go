package swarm

import (
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/host"
	"pnode/swarm/peerstore"
)

// known are the peers for whom places are kept before they are admitted: members that were met or heard of, and who
// this node was told to connect to, of whom it knew when it ran before.
type known struct {
	store     *peerstore.Store
	bootstrap []peer.AddrInfo
}

var _ host.Known = known{}

// Knows reports whether p is one of them.
func (k known) Knows(p peer.ID) bool {
	_, met := k.store.Capability(p)
	return met || slices.ContainsFunc(k.bootstrap, func(b peer.AddrInfo) bool { return b.ID == p })
}

// KnownAddrs returns where they were.
func (k known) KnownAddrs() []ma.Multiaddr {
	addrs := k.store.Certified()
	for _, b := range k.bootstrap {
		addrs = append(addrs, b.Addrs...)
	}
	return addrs
}
