package swarm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

func gone() bool      { return false }
func connected() bool { return true }

// A stream that comes before the verdict waits for it, whichever it is.
func TestDoorWait(t *testing.T) {
	p := testIdentity(t).id
	ctx := testContext(t)
	d := newDoor()
	if err := d.wait(ctx, p); !errors.Is(err, ErrNotMember) {
		t.Errorf("not connected: %v", err)
	}
	d.arrive(p)
	if err := d.wait(expired(), p); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("undecided: %v", err)
	}
	verdict := make(chan error, 1)
	go func() { verdict <- d.wait(ctx, p) }()
	if _, _, err := d.admit(p, Capability{}, instance{}); err != nil {
		t.Fatal(err)
	}
	if err := <-verdict; err != nil {
		t.Errorf("admitted: %v", err)
	}
	d.refuse(p, ErrSignature) // a late refusal
	if !d.isMember(p) {
		t.Error("a member was refused")
	}
	if d.leave(p, connected) || !d.isMember(p) {
		t.Error("left while connected")
	}
	if !d.leave(p, gone) || d.isMember(p) {
		t.Error("still a member after leaving")
	}
}

// A visit that ended is not mistaken for the next one: its guard lets that one be.
func TestDoorVisits(t *testing.T) {
	p := testIdentity(t).id
	d := newDoor()
	v, first := d.arrive(p)
	if again, second := d.arrive(p); !first || second || again != v || !d.isStranger(p, v) {
		t.Error("a second connection is another visit")
	}
	d.leave(p, gone)
	if d.isStranger(p, v) {
		t.Error("a visitor that left is still there")
	}
	next, first := d.arrive(p)
	if !first || d.isStranger(p, v) || !d.isStranger(p, next) {
		t.Error("the next visit is taken for the last")
	}
	d.refuse(p, ErrWrongRun)
	if !d.isStranger(p, next) {
		t.Error("a refused visitor is no stranger")
	}
	if _, _, err := d.admit(p, Capability{}, instance{}); err != nil || d.isStranger(p, next) {
		t.Errorf("an admitted visitor is a stranger: %v", err)
	}
}

func TestDoorRefusal(t *testing.T) {
	p := testIdentity(t).id
	ctx := testContext(t)
	d := newDoor()
	d.arrive(p)
	d.refuse(p, ErrWrongRun)
	if err := d.wait(ctx, p); !errors.Is(err, ErrWrongRun) {
		t.Errorf("refused: %v", err)
	}
	changed := d.watch()
	if first, _, err := d.admit(p, Capability{}, instance{1}); err != nil || !first {
		t.Errorf("second greeting after a refusal: %v", err)
	}
	<-changed
	if _, replaced, _ := d.admit(p, Capability{}, instance{1}); replaced {
		t.Error("same instance taken for another")
	}
	if _, replaced, _ := d.admit(p, Capability{}, instance{2}); !replaced {
		t.Error("another instance not noticed")
	}
	d.block(p)
	if err := d.wait(ctx, p); d.isMember(p) || !errors.Is(err, ErrBlocked) {
		t.Errorf("blocked: %v", err)
	}
	if _, _, err := d.admit(p, Capability{}, instance{}); !errors.Is(err, ErrBlocked) {
		t.Errorf("admitted though blocked: %v", err)
	}
	if _, _, err := d.admit(testIdentity(t).id, Capability{}, instance{}); !errors.Is(err, ErrNotMember) {
		t.Errorf("admitted though not connected: %v", err)
	}
}

func TestBookRetries(t *testing.T) {
	p := testIdentity(t).id
	now := time.Unix(1000, 0)
	nobody := func(peer.ID) bool { return false }
	b := newBook()
	b.seed(p, nil)
	if got := b.due(now, nobody); len(got) != 0 {
		t.Errorf("dial without an address: %v", got)
	}
	b.seed(p, []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/udp/1/quic-v1")})
	for i := range 12 {
		if got := b.due(now, nobody); len(got) != 1 {
			t.Fatalf("try %d: due %v", i, got)
		}
		if got := b.due(now, nobody); len(got) != 0 {
			t.Fatalf("try %d: dialed twice", i)
		}
		b.tried(p, ErrRefused, now)
		wait := min(firstRetry<<i, longestRetry)
		if got := b.due(now.Add(wait/2-1), nobody); len(got) != 0 {
			t.Fatalf("try %d: again before %s", i, wait/2)
		}
		now = now.Add(wait/2 + wait)
	}
	if b.refusal(p) != nil {
		t.Errorf("a failed dial is a refusal: %v", b.refusal(p))
	}
	b.refused(p, ErrRefused)
	if !errors.Is(b.refusal(p), ErrRefused) {
		t.Errorf("refusal %v", b.refusal(p))
	}
	b.due(now, nobody)
	b.tried(p, nil, now)
	if got := b.due(now, func(q peer.ID) bool { return q == p }); len(got) != 0 {
		t.Error("a skipped peer is due")
	}
	if got := b.due(now, nobody); len(got) != 1 {
		t.Error("not due at once after a success")
	}
}

func TestBookBounds(t *testing.T) {
	b := newBook()
	o, now := testOwner(t), time.Now()
	var last Capability
	for range maxSeeds + 1 {
		last = testCapability(t, o, now)
		b.seed(last.peer, nil)
	}
	if len(b.entries) != maxSeeds {
		t.Errorf("%d seeds, want %d", len(b.entries), maxSeeds)
	}
	if _, ok := b.capability(last.peer); ok || !b.learn(last, nil) {
		t.Error("a proven member has no place among seeds")
	}
	var many []ma.Multiaddr
	for i := range 2 * maxPeerAddrs {
		many = append(many, ma.StringCast("/ip4/192.0.2.1/udp/1/quic-v1").Encapsulate(ma.StringCast("/ip4/192.0.2."+string(rune('0'+i%10)))))
	}
	b.learn(last, many)
	if n := len(b.addrs(last.peer)); n != 10 {
		t.Errorf("%d addresses of 10 distinct", n)
	}
	if got := b.records(last.peer, 10); len(got) != 0 {
		t.Errorf("told a peer of itself or of seeds: %v", got)
	}
	if got := b.records("", 10); len(got) != 1 || len(b.known()) != 10 {
		t.Errorf("%d records, %d addresses", len(got), len(b.known()))
	}
	if got := b.expire(now); len(got) != 0 {
		t.Errorf("expired early: %v", got)
	}
	if got := b.expire(now.Add(2 * time.Hour)); len(got) != 1 || got[0] != last.peer {
		t.Errorf("expired: %v", got)
	}
}

func testCapability(t *testing.T, o Owner, now time.Time) Capability {
	t.Helper()
	b, err := o.Capability(testRun, testIdentity(t), time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := DecodeCapability(b)
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
	c[1].book.learn(forged, []ma.Multiaddr{quicAddr(c[1])}) // as a dishonest member would
	if _, err := c[0].fetchPeers(ctx, peerID(t, c[1].ID())); err != nil {
		t.Fatal(err)
	}
	if _, ok := c[0].Capability(forged.Peer); ok {
		t.Error("a member by another owner's word was believed")
	}
	if _, ok := c[0].Capability(c[1].ID()); !ok || len(c[0].Known()) == 0 {
		t.Error("a real member is not known")
	}
}

func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]string{
		30 * time.Second: "30s", 90 * time.Second: "1m", 3*time.Hour + time.Minute: "3h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := rough(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
