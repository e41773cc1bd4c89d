package host

import (
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
)

// Nobody is dialed through a relay that gives no sign of life; the relay itself is, and others through other relays.
func TestSilentRelays(t *testing.T) {
	const silent, other, target = "12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf",
		"12D3KooWSecyiMFJsyfmCPAVm45aTwnUuKQUgcCqMwYUuHSumjBM", "12D3KooWNuCeLYTFwtpahxP4qkc2ZH7gqwoQq9KjTXNKy3RGLJ5U"
	id, err := peer.Decode(silent)
	if err != nil {
		t.Fatal(err)
	}
	g := gater{peers: admission.NewPeers()}
	g.peers.Arrive(id)
	through := func(relay string) bool {
		return g.InterceptAddrDial(target, ma.StringCast("/ip4/192.0.2.1/tcp/4001/p2p/"+relay+"/p2p-circuit"))
	}
	if !through(silent) {
		t.Error("a relay that answers is not dialed through")
	}
	g.peers.SetSilent(id, true)
	if through(silent) || !through(other) || !g.InterceptAddrDial(id, ma.StringCast("/ip4/192.0.2.1/tcp/4001")) {
		t.Error("the wrong addresses are dialed while one relay is silent")
	}
	g.peers.Leave(id, func() bool { return false })
	g.peers.SetSilent(id, true)
	if !through(silent) {
		t.Error("a relay that has left stays silent")
	}
}

// knownPeer is the only one that a node knows.
type knownPeer struct {
	Known
	id peer.ID
}

func (k knownPeer) Knows(p peer.ID) bool { return p == k.id }

// Nobody is dialed through a known peer that is not connected; one that an invite names is.
func TestRelaysThatAreNotConnected(t *testing.T) {
	const met, other, target = "12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf",
		"12D3KooWSecyiMFJsyfmCPAVm45aTwnUuKQUgcCqMwYUuHSumjBM", "12D3KooWNuCeLYTFwtpahxP4qkc2ZH7gqwoQq9KjTXNKy3RGLJ5U"
	id, err := peer.Decode(met)
	if err != nil {
		t.Fatal(err)
	}
	g := gater{admission.NewPeers(), knownPeer{id: id}}
	through := func(relay string) bool {
		return g.InterceptAddrDial(target, ma.StringCast("/ip4/192.0.2.1/tcp/4001/p2p/"+relay+"/p2p-circuit"))
	}
	if through(met) || !through(other) {
		t.Error("the wrong addresses are dialed while a known relay is not connected")
	}
	g.peers.Arrive(id)
	if !through(met) {
		t.Error("a peer that is connected does not relay")
	}
}
