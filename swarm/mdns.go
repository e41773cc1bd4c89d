package swarm

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
)

// discovered takes what mDNS finds: addresses of peers that have yet to prove themselves.
type discovered struct{ s *Swarm }

// HandlePeerFound is called by mDNS.
func (d discovered) HandlePeerFound(info peer.AddrInfo) {
	if info.ID != d.s.host.ID() && d.s.book.seed(info.ID, info.Addrs) {
		d.s.hurry()
	}
}

// startMDNS announces this node in the local network under a name made from the run ID. A
// machine without multicast goes on without it.
func startMDNS(s *Swarm) io.Closer {
	service := mdns.NewMdnsService(s.host, mdnsName(string(s.cfg.Run)), discovered{s})
	if err := service.Start(); err != nil {
		s.log.Warn("swarm: no search in the local network", "err", err)
	}
	return service
}

// mdnsName fits a run ID into a DNS label: 63 bytes at most, case not kept, and no more
// said about the run than needed.
func mdnsName(run string) string {
	sum := sha256.Sum256([]byte("pnode mdns " + run))
	return "_pnode-" + hex.EncodeToString(sum[:4]) + "._udp"
}
