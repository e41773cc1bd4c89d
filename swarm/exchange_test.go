package swarm

import (
	"bytes"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
	"pnode/swarm/admission"
)

func testCapability(t *testing.T, o admission.Owner, now time.Time) admission.Capability {
	t.Helper()
	b, err := o.Capability(testRun, testIdentity(t), time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := admission.DecodeCapability(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A new member's addresses reach the others through the exchange, signature by signature.
func TestRecordsAreVerified(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	forged := testCapability(t, testOwner(t), time.Now())
	c[1].store.Learn(forged, []ma.Multiaddr{quicAddr(c[1])}) // as a dishonest member would
	if _, err := c[0].mesh.FetchPeers(ctx, peerID(t, c[1].ID())); err != nil {
		t.Fatal(err)
	}
	if _, ok := c[0].Capability(forged.Peer); ok {
		t.Error("a member by another owner's word was believed")
	}
	if _, ok := c[0].Capability(c[1].ID()); !ok || len(c[0].Known()) == 0 {
		t.Error("a real member is not known")
	}
}

// A member that is known stays what it is, whatever others show in its name.
func TestAnotherCapabilityOfAKnownMember(t *testing.T) {
	c := cluster(t, 3)
	before, ok := c[0].store.Capability(peerID(t, c[2].ID()))
	b, err := testOwner(t).Capability(testRun, c[2].cfg.Identity, time.Hour, time.Now())
	if err != nil || !ok {
		t.Fatal(err, ok)
	}
	forged, err := admission.DecodeCapability(b)
	if err != nil {
		t.Fatal(err)
	}
	c[1].store.Learn(forged, []ma.Multiaddr{quicAddr(c[1])}) // as a dishonest member would
	if _, err := c[0].mesh.FetchPeers(testContext(t), peerID(t, c[1].ID())); err != nil {
		t.Fatal(err)
	}
	if now, _ := c[0].store.Capability(before.ID()); !bytes.Equal(now.Encode(), before.Encode()) {
		t.Error("another owner's word about a known member was believed")
	}
}

// A member that has an invite's secret binds made-up peers to it and tells of them: no more are kept than the invite has
// uses, and none once the log can say that it did not let them in.
func TestAMemberTellsOfMadeUpPeers(t *testing.T) {
	const told, uses = 20, 2
	o := testOwner(t)
	var both [2]*Swarm
	for i := range both {
		cfg := testMember(t, o, testRun)
		if i > 0 {
			cfg.Bootstrap = both[0].Addrs()
		}
		both[i] = start(t, cfg)
	}
	ctx := testContext(t)
	waitMembers(t, ctx, both[0], 1)
	waitMembers(t, ctx, both[1], 1)
	v, err := o.Invite(admission.InviteOptions{Run: testRun, Uses: uses, Addrs: both[0].Addrs()}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var ghosts []peer.ID
	for range told {
		id := testIdentity(t)
		b, err := v.Redeem(id, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c, err := admission.DecodeCapability(b)
		if err != nil {
			t.Fatal(err)
		}
		both[1].store.Learn(c, []ma.Multiaddr{quicAddr(both[1])}) // as a dishonest member would
		ghosts = append(ghosts, id.ID())
	}
	kept := func() (n int) {
		if _, err := both[0].mesh.FetchPeers(ctx, peerID(t, both[1].ID())); err != nil {
			t.Fatal(err)
		}
		for _, p := range ghosts {
			if _, ok := both[0].store.Capability(p); ok {
				n++
			}
		}
		return n
	}
	if n := kept(); n != uses {
		t.Errorf("%d made-up peers of an invite with %d uses are kept", n, uses)
	}
	both[0].Follow(func(p plan.PeerID) (belongs, told bool) { return p == both[1].ID(), true })
	both[0].Review()
	if n := kept(); n != 0 {
		t.Errorf("%d made-up peers are kept that the log does not admit", n)
	}
	if _, ok := both[0].Capability(both[1].ID()); !ok {
		t.Error("a peer that belongs to the run is forgotten")
	}
}
