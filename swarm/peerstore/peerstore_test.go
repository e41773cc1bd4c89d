package peerstore

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
	"pnode/swarm/admission"
)

const testRun plan.RunID = "testrun"

// testOwner is an owner key in a folder of its own.
func testOwner(t testing.TB) admission.Owner {
	t.Helper()
	o, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func testIdentity(t testing.TB) admission.Identity {
	t.Helper()
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

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

func TestStoreRetries(t *testing.T) {
	p := testIdentity(t).ID()
	now := time.Unix(1000, 0)
	nobody := func(peer.ID, bool) bool { return false }
	b := New()
	b.Seed(p, nil)
	if got := b.Due(now, nobody); len(got) != 0 {
		t.Errorf("dial without an address: %v", got)
	}
	b.Seed(p, []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/udp/1/quic-v1")})
	for i := range 12 {
		if got := b.Due(now, nobody); len(got) != 1 {
			t.Fatalf("try %d: due %v", i, got)
		}
		if got := b.Due(now, nobody); len(got) != 0 {
			t.Fatalf("try %d: dialed twice", i)
		}
		b.Tried(p, admission.ErrRefused, now)
		wait := min(firstRetry<<i, longestRetry)
		if got := b.Due(now.Add(wait/2-1), nobody); len(got) != 0 {
			t.Fatalf("try %d: again before %s", i, wait/2)
		}
		now = now.Add(wait/2 + wait)
	}
	if b.Refusal(p) != nil {
		t.Errorf("a failed dial is a refusal: %v", b.Refusal(p))
	}
	b.Refused(p, admission.ErrRefused)
	if !errors.Is(b.Refusal(p), admission.ErrRefused) {
		t.Errorf("refusal %v", b.Refusal(p))
	}
	b.Due(now, nobody)
	b.Tried(p, nil, now)
	if got := b.Due(now, func(q peer.ID, _ bool) bool { return q == p }); len(got) != 0 {
		t.Error("a skipped peer is due")
	}
	if got := b.Due(now, nobody); len(got) != 1 {
		t.Error("not due at once after a success")
	}
}

func TestStoreBounds(t *testing.T) {
	b := New()
	now := time.Now()
	for i := range maxSeeds {
		b.Seed(peer.ID(strconv.Itoa(i)), nil)
	}
	last := testCapability(t, testOwner(t), now)
	b.Seed(last.ID(), nil)
	if len(b.entries) != maxSeeds {
		t.Errorf("%d seeds, want %d", len(b.entries), maxSeeds)
	}
	if _, ok := b.Capability(last.ID()); ok || !b.Learn(last, nil) {
		t.Error("a proven member has no place among seeds")
	}
	var many []ma.Multiaddr
	for i := range 2 * maxPeerAddrs {
		many = append(many, ma.StringCast("/ip4/192.0.2.1/udp/1/quic-v1").Encapsulate(ma.StringCast("/ip4/192.0.2."+string(rune('0'+i%10)))))
	}
	b.Learn(last, many)
	if n := len(b.Addrs(last.ID())); n != 10 {
		t.Errorf("%d addresses of 10 distinct", n)
	}
	if got := b.Records(last.ID(), 10); len(got) != 0 {
		t.Errorf("told a peer of itself or of seeds: %v", got)
	}
	if got := b.Records("", 10); len(got) != 1 || len(b.Known()) != 10 {
		t.Errorf("%d records, %d addresses", len(got), len(b.Known()))
	}
	if got := b.Expire(now); len(got) != 0 {
		t.Errorf("expired early: %v", got)
	}
	if got := b.Expire(now.Add(2 * time.Hour)); len(got) != 1 || got[0] != last.ID() {
		t.Errorf("expired: %v", got)
	}
}

// Peers that were only heard of keep nobody out who belongs to the run.
func TestHeardPeersMakeWay(t *testing.T) {
	b, now := New(), time.Now()
	heard := testCapability(t, testOwner(t), now)
	for range 2 {
		if !b.Hear(heard, nil) {
			t.Fatal("a peer that was heard of is not kept")
		}
	}
	met := testCapability(t, testOwner(t), now)
	for i := len(b.entries); i < maxMembers; i++ {
		b.entries[peer.ID(strconv.Itoa(i))] = &entry{capability: met}
	}
	if !b.Learn(met, nil) {
		t.Error("no room for a peer that belongs to the run")
	}
	if _, ok := b.Capability(heard.ID()); ok || len(b.entries) != maxMembers {
		t.Errorf("%d peers, want %d", len(b.entries), maxMembers)
	}
}
