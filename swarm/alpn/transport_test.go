package alpn

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
	"pnode/swarm/version"
)

// end is one of two hosts with a transport.
type end struct {
	*Transport
	id admission.Identity
}

// pair makes two hosts that are connected and members for each other, with a transport each.
func pair(t *testing.T) (a, b end) {
	t.Helper()
	ends := [2]end{}
	for i := range ends {
		dir := t.TempDir()
		id, err := admission.LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		peers, group := admission.NewPeers(), tasks.New()
		h, err := host.New(host.Config{Identity: id, Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Peers: peers, Tasks: group})
		if err != nil {
			t.Fatal(err)
		}
		made, err := New(Config{
			ALPN: "pnode-test/1", Identity: id, Host: h, Peers: peers, Tasks: group, Log: slog.New(slog.DiscardHandler),
			Reach: func(_ context.Context, p plan.PeerID) (peer.ID, error) {
				id, err := peer.Decode(string(p))
				if err == nil && !peers.Member(id) {
					err = admission.ErrNotMember
				}
				return id, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			group.Close()
			made.Close()
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			group.Wait()
		})
		ends[i] = end{made, id}
	}
	a, b = ends[0], ends[1]
	if err := a.Host.Connect(t.Context(), peer.AddrInfo{ID: b.id.ID(), Addrs: b.Host.Addrs()}); err != nil {
		t.Fatal(err)
	}
	for i, e := range ends {
		other := ends[1-i].id.ID()
		e.Peers.Arrive(other)
		if _, _, err := e.Peers.Admit(other, admission.Capability{}, admission.Instance{}); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func quicAddr(e end) ma.Multiaddr {
	for _, a := range e.Host.Addrs() {
		if isQUIC(a) {
			return a
		}
	}
	panic("no QUIC address")
}

// Only the peer that is asked for is connected to.
func TestDialIsToThePeer(t *testing.T) {
	a, b := pair(t)
	stranger, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.dialAddr(t.Context(), stranger.ID(), quicAddr(b), plan.QUIC, nil); err == nil || !strings.Contains(err.Error(), "peer id mismatch") {
		t.Errorf("dial of a wrong peer ID: %v", err)
	}
	if _, err := a.Dial(t.Context(), stranger.Peer(), ""); !errors.Is(err, admission.ErrNotMember) {
		t.Errorf("dial of an unknown peer: %v", err)
	}
}

// A peer that speaks another version of the ALPN is told apart from one that cannot be reached.
func TestVersionOfAnALPN(t *testing.T) {
	a, b := pair(t)
	newer := &Transport{Config: a.Config, identity: a.identity}
	newer.ALPN = "pnode-test/2"
	if _, err := newer.dialAddr(t.Context(), b.id.ID(), quicAddr(b), plan.QUIC, nil); !errors.Is(err, version.Err) || !strings.Contains(err.Error(), "pnode-test/2") {
		t.Errorf("dial of another version: %v", err)
	}
}

// An address that does not answer delays a connection, and no more.
func TestDialManyAddresses(t *testing.T) {
	a, b := pair(t)
	ctx, p := t.Context(), b.id.ID()
	dead := ma.StringCast("/ip4/127.0.0.1/udp/9/quic-v1")
	began := time.Now()
	var tries []try
	for _, addr := range []ma.Multiaddr{dead, quicAddr(a), quicAddr(b)} {
		tries = append(tries, func(ctx context.Context) (transport.Conn, error) { return a.dialAddr(ctx, p, addr, plan.QUIC, nil) })
	}
	conn, err := a.first(ctx, dialStagger, tries, nil)
	if err != nil {
		t.Fatal(err)
	}
	if port, _ := quicAddr(b).ValueForProtocol(ma.P_UDP); !strings.HasSuffix(conn.RemoteAddr().String(), ":"+port) {
		t.Errorf("connected to %s, want port %s", conn.RemoteAddr(), port)
	}
	if d := time.Since(began); d < dialStagger {
		t.Errorf("connected after %s, before the second address was tried", d)
	}
}

// A connection that was under way while its peer was removed is closed, whichever end began it.
func TestAConnectionUnderWayWhileItsPeerIsRemoved(t *testing.T) {
	a, b := pair(t)
	p := b.id.ID()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	a.Peers.Block(p, admission.Removed("removed"))
	a.Drop(p)
	conn, err := a.dialAddr(ctx, p, quicAddr(b), plan.QUIC, nil) // as one that had begun before
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-conn.Context().Done():
	case <-ctx.Done():
		t.Error("a connection to a removed peer stays open")
	}
	theirs, err := b.dialAddr(ctx, a.id.ID(), quicAddr(a), plan.QUIC, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-theirs.Context().Done():
	case <-ctx.Done():
		t.Error("a connection of a removed peer stays open")
	}
}
