package swarm

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/admission"
	"pnode/swarm/handshake"
	"pnode/swarm/peerstore"
	"pnode/swarm/tasks"
	"pnode/swarm/virtual"
)

// A member that says of itself, to libp2p too, that it is at addresses which nobody may use keeps no other from hearing of the
// members or from coming back: its other addresses are passed on, and these are not.
func TestVirtualOddAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, ctx := newVirtualNet(t), testOwner(t), testContext(t)
		cfg := testMember(t, o, testRun)
		cfg.Simulated = n.Host()
		honest := start(t, cfg)

		plain := ma.StringCast("/ip4/" + virtual.Addr(1).String() + "/udp/4001/quic-v1")
		said := []ma.Multiaddr{
			ma.StringCast("/dns4/x\x1b[31m.example/udp/4001/quic-v1"), ma.StringCast("/dns4/" + strings.Repeat("x", 240) + "/udp/4001/quic-v1"),
			plain.Encapsulate(ma.StringCast("/sni/x\x1b[31m")), plain,
		}
		x := newStranger(t, n.Host(), libp2p.AddrsFactory(func([]ma.Multiaddr) []ma.Multiaddr { return said }))
		x.enter(t, o)
		x.connect(t, ctx, honest)
		waitMembers(t, ctx, honest, 1)
		time.Sleep(time.Second) // virtual: libp2p identifies
		if heard := honest.host.Peerstore().Addrs(x.ID()); !slices.ContainsFunc(heard, said[0].Equal) {
			t.Fatalf("libp2p has heard of %q", heard)
		}

		cfg = testMember(t, o, testRun)
		cfg.Simulated, cfg.Bootstrap = n.Host(), honest.Addrs()
		later := start(t, cfg)
		waitMembers(t, ctx, later, 2)
		if _, err := later.mesh.FetchPeers(ctx, honest.host.ID()); err != nil {
			t.Errorf("the list of peers is not read: %v", err)
		}
		for _, s := range []*Swarm{honest, later} {
			if got := s.store.Addrs(x.ID()); !slices.EqualFunc(got, []ma.Multiaddr{plain}, ma.Multiaddr.Equal) {
				t.Errorf("%s keeps the addresses %q", s.ID(), got)
			}
		}
		cfg.Bootstrap = later.Known()
		if err := later.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.Simulated = n.Host()
		waitMembers(t, ctx, start(t, cfg), 2)
	})
}

// enter makes a stranger a member, below the swarm: nothing checks what it says.
func (x *stranger) enter(t *testing.T, o admission.Owner) {
	t.Helper()
	c, err := o.Capability(testRun, x.id, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	group := tasks.New()
	t.Cleanup(func() {
		group.Close()
		x.Close()
		group.Wait()
	})
	err = handshake.Start(handshake.Config{
		Host: x, Run: admission.Run{ID: testRun, OwnerKey: o.PublicKey()}, Capability: c,
		Admit: func(context.Context, admission.Capability) error { return nil },
		Peers: admission.NewPeers(), Store: peerstore.New(), Tasks: group, Log: slog.New(slog.DiscardHandler),
		Joined: func(peer.ID) {}, Left: func(peer.ID) {},
	})
	if err != nil {
		t.Fatal(err)
	}
}
