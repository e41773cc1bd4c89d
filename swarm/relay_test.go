package swarm

import (
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	ma "github.com/multiformats/go-multiaddr"
)

// A node behind a NAT is admitted, and reached, through a member that relays for it.
func TestRelayedMember(t *testing.T) {
	t.Parallel()
	o := testOwner(t)
	ctx := testContext(t)
	cfg := testMember(t, o, testRun)
	cfg.Listen, cfg.Reach = []string{"0.0.0.0:0"}, ReachPublic
	public := start(t, cfg)
	cfg = testMember(t, o, testRun)
	cfg.Listen, cfg.Reach, cfg.Bootstrap = []string{"0.0.0.0:0"}, ReachPrivate, public.Addrs()
	hidden := start(t, cfg)
	waitMembers(t, ctx, hidden, 1)
	relay := peer.AddrInfo{ID: public.host.ID(), Addrs: public.host.Addrs()}
	if _, err := client.Reserve(ctx, hidden.host, relay); err != nil {
		t.Fatal(err)
	}
	serveEcho(hidden)

	cfg = testMember(t, o, testRun)
	cfg.Listen, cfg.Reach = []string{"0.0.0.0:0"}, ReachPrivate
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
	if err := other.door.wait(ctx, hidden.host.ID()); err != nil {
		t.Fatal(err)
	}
	call(t, ctx, other, hidden)
}

// Neither end of a relayed connection may be a stranger.
func TestRelayMembersOnly(t *testing.T) {
	r := relays{newDoor(), newTasks()}
	member, stranger, unknown := testIdentity(t).id, testIdentity(t).id, testIdentity(t).id
	r.door.arrive(member)
	r.door.arrive(stranger)
	r.door.refuse(stranger, ErrNeedsInvite)
	if _, _, err := r.door.admit(member, Capability{}, instance{}); err != nil {
		t.Fatal(err)
	}
	if !r.AllowReserve(member, nil) || !r.AllowConnect(member, nil, member) {
		t.Error("a member may not use the relay")
	}
	for _, p := range []peer.ID{stranger, unknown} {
		if r.AllowReserve(p, nil) || r.AllowConnect(p, nil, member) || r.AllowConnect(member, nil, p) {
			t.Error("a stranger may use the relay")
		}
	}
}
