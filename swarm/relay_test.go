package swarm

import (
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/host"
)

// A node behind a NAT is admitted, and reached, through a member that relays for it.
func TestRelayedMember(t *testing.T) {
	t.Parallel()
	o := testOwner(t)
	ctx := testContext(t)
	cfg := testMember(t, o, testRun)
	cfg.Listen, cfg.Reach = []string{"0.0.0.0:0"}, host.ReachPublic
	public := start(t, cfg)
	cfg = testMember(t, o, testRun)
	// One address: of two that are dialed at once, libp2p may close the connection to one just when the relay opens its stream on it.
	cfg.Listen, cfg.Reach, cfg.Bootstrap = []string{"0.0.0.0:0"}, host.ReachPrivate, public.Addrs()[:1]
	hidden := start(t, cfg)
	waitMembers(t, ctx, hidden, 1)
	if n := len(public.host.Network().ConnsToPeer(hidden.host.ID())); n != 1 {
		t.Fatalf("%d connections to one address", n)
	}
	relay := peer.AddrInfo{ID: public.host.ID(), Addrs: public.host.Addrs()}
	if _, err := client.Reserve(ctx, hidden.host, relay); err != nil {
		t.Fatal(err)
	}
	serveEcho(hidden)

	cfg = testMember(t, o, testRun)
	cfg.Listen, cfg.Reach = []string{"0.0.0.0:0"}, host.ReachPrivate
	cfg.MaxMesh = 1 // do not dial hidden directly when public tells of it
	other := start(t, cfg)
	if err := other.Connect(ctx, public.Addrs()...); err != nil {
		t.Fatal(err)
	}
	circuit := ma.StringCast(public.Addrs()[0] + "/p2p-circuit")
	through := peer.AddrInfo{ID: hidden.host.ID(), Addrs: []ma.Multiaddr{circuit}}
	if err := other.host.Connect(network.WithAllowLimitedConn(ctx, "test"), through); err != nil {
		t.Fatal(err)
	}
	if err := other.peers.Wait(ctx, hidden.host.ID()); err != nil {
		t.Fatal(err)
	}
	call(t, ctx, other, hidden)
}
