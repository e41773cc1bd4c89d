package swarm

import (
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"

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
