package mesh

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
)

// Discover announces this node in the local network, under a name made from the run ID, and dials who else does,
// until Close. A machine without multicast goes on without it.
func (m *Mesh) Discover() io.Closer {
	service := mdns.NewMdnsService(m.Host, mdnsName(string(m.RunKeys.ID)), discovered{m})
	if err := service.Start(); err != nil {
		m.Log.Warn("swarm: no search in the local network", "err", err)
	}
	return service
}

// discovered takes what mDNS finds: addresses of peers that have yet to prove themselves.
type discovered struct{ mesh *Mesh }

// HandlePeerFound is called by mDNS.
func (d discovered) HandlePeerFound(info peer.AddrInfo) {
	if info.ID != d.mesh.Host.ID() && d.mesh.Store.Seed(info.ID, info.Addrs) {
		d.mesh.Hurry()
	}
}

// mdnsName returns a name for a run that fits a DNS label: 63 bytes at most, case not kept, and no more said about
// the run than needed.
func mdnsName(run string) string {
	sum := sha256.Sum256([]byte("pnode mdns " + run))
	return "_pnode-" + hex.EncodeToString(sum[:4]) + "._udp"
}
