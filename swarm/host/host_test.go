package host

import (
	"net/netip"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/swarm/admission"
	"pnode/swarm/tasks"
)

func testIdentity(t testing.TB) admission.Identity {
	t.Helper()
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// On 0.0.0.0 the UDP socket is lent to libp2p and comes back; on one address libp2p opens its own.
func TestSharedSockets(t *testing.T) {
	for text, want := range map[string]int{"0.0.0.0:0": 1, "127.0.0.1:0": 0} {
		a := netip.MustParseAddrPort(text)
		h, err := New(Config{Identity: testIdentity(t), Listen: []netip.AddrPort{a}, Reach: ReachPublic, Peers: admission.NewPeers(), Tasks: tasks.New()})
		if err != nil {
			t.Fatal(err)
		}
		if len(h.shared) != want {
			t.Errorf("%s: %d sockets are lent, want %d", text, len(h.shared), want)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Neither end of a relayed connection may be a stranger.
func TestRelayMembersOnly(t *testing.T) {
	r := circuits{admission.NewPeers(), tasks.New()}
	member, stranger, unknown := testIdentity(t).ID(), testIdentity(t).ID(), testIdentity(t).ID()
	r.peers.Arrive(member)
	r.peers.Arrive(stranger)
	r.peers.Refuse(stranger, admission.ErrNeedsInvite)
	if _, _, err := r.peers.Admit(member, admission.Capability{}, admission.Instance{}); err != nil {
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
