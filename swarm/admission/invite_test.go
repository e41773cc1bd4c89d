package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pnode/swarm/version"
)

// An invite fits a chat line, holds nothing but what a newcomer cannot ask for, and comes back from its text.
func TestInviteIsShort(t *testing.T) {
	id := testIdentity(t)
	at := func(addrs ...string) []string {
		for i, a := range addrs {
			addrs[i] = a + "/p2p/" + id.ID().String()
		}
		return addrs
	}
	for name, c := range map[string]struct {
		addrs []string
		chars int
	}{
		"one address": {at("/ip4/203.0.113.7/udp/4001/quic-v1", "/ip4/203.0.113.7/tcp/4001"), 102},
		"two":         {at("/ip4/203.0.113.7/udp/4001/quic-v1", "/ip4/10.1.2.3/udp/4001/quic-v1"), 112},
		"IPv6":        {at("/ip6/2001:db8::7/udp/4001/quic-v1"), 118},
		"a name":      {at("/dns4/run.example.org/udp/4001/quic-v1"), 200},
	} {
		v, err := testOwner(t).Invite(InviteOptions{Run: testRun, Addrs: c.addrs}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		text := v.String()
		if len(text) > c.chars {
			t.Errorf("%s: %d characters, want %d: %s", name, len(text), c.chars, text)
		}
		parsed, err := ParseInvite(" " + text + "\n")
		if err != nil || parsed.String() != text || string(parsed.Bearer()) != string(v.Bearer()) || parsed.Addrs[0] != c.addrs[0] {
			t.Errorf("%s: %s came back as %v, %v", name, text, parsed, err)
		}
	}
	if _, err := ParseInvite("pnode2-AAAA"); !errors.Is(err, version.Err) {
		t.Errorf("an invite of another version: %v", err)
	}
}

// What the contact says is believed as far as the invite proves it.
func TestOfferIsProved(t *testing.T) {
	now, owner, id := time.Now(), testOwner(t), testIdentity(t)
	addrs := []string{"/ip4/203.0.113.7/udp/4001/quic-v1/p2p/" + id.ID().String()}
	make := func(o Owner, opt InviteOptions) Invite {
		opt.Addrs = addrs
		if opt.Run == "" {
			opt.Run = testRun
		}
		v, err := o.Invite(opt, now)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v, other, mallory := make(owner, InviteOptions{}), make(owner, InviteOptions{}), make(testOwner(t), InviteOptions{})
	parsed, err := ParseInvite(v.String())
	if err != nil {
		t.Fatal(err)
	}
	run := Run{testRun, owner.PublicKey()}
	longer := v.Grant
	longer.Expires = longer.Expires.Add(time.Hour)
	for name, c := range map[string]struct {
		offer Offer
		want  error
	}{
		"good":          {Offer{Run: run, Grant: v.Grant}, nil},
		"another grant": {Offer{Run: run, Grant: other.Grant}, ErrSignature},
		"changed":       {Offer{Run: run, Grant: longer}, ErrSignature},
		"another run":   {Offer{Run: Run{testRun, mallory.OwnerKey}, Grant: mallory.Grant}, ErrWrongRun},
		"another name":  {Offer{Run: Run{"elsewhere", owner.PublicKey()}, Grant: make(owner, InviteOptions{Run: "elsewhere"}).Grant}, ErrWrongRun},
		"refused":       {RefuseClaim(ErrInviteUsed), ErrInviteUsed},
	} {
		o, err := DecodeOffer(c.offer.Append(nil))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := parsed.Accept(o, now)
		if !errors.Is(err, c.want) || err == nil && c.want != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := got.Redeem(id, now); (err == nil) != (c.want == nil) {
			t.Errorf("%s: redeemed: %v", name, err)
		}
	}
}

// A claim counts for the peer that made it, at the contact that it was made to.
func TestClaim(t *testing.T) {
	v, err := testOwner(t).Invite(InviteOptions{Run: testRun}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := testIdentity(t).ID(), testIdentity(t).ID(), testIdentity(t).ID()
	claim, err := v.Claim(a, b)
	if err != nil {
		t.Fatal(err)
	}
	other := claim
	other.Nonce[0]++
	if !claim.By(a, b) || claim.By(c, b) || claim.By(a, c) || other.By(a, b) {
		t.Error("a claim counts for others")
	}
	if _, err := (Invite{Addrs: []string{"/ip4/127.0.0.1"}}).Claim(a, b); !errors.Is(err, ErrNeedsInvite) {
		t.Errorf("claim by an address: %v", err)
	}
}

// Ownership is handed on by invites for owners, a bounded number of times, and no further than it goes.
func TestOwnershipChain(t *testing.T) {
	now, root := time.Now(), testOwner(t)
	run := Run{testRun, root.PublicKey()}
	owner, member := root, testIdentity(t)
	for depth := range maxIssuers + 2 {
		v, err := owner.Invite(InviteOptions{Run: testRun}, now)
		if depth > maxIssuers {
			if !errors.Is(err, ErrNoOwnerKey) {
				t.Errorf("handed on %d times: %v", depth, err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := v.Redeem(member, now)
		if err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
		if len(b) > MaxCapabilityBytes {
			t.Errorf("depth %d: %d bytes", depth, len(b))
		}
		c, err := DecodeCapability(b)
		if err != nil || c.Verify(run, now) != nil || c.Verify(Run{testRun, testOwner(t).PublicKey()}, now) == nil {
			t.Errorf("depth %d: %v", depth, err)
		}
		if _, err := OwnerBy(member, b, run.OwnerKey); !errors.Is(err, ErrNoOwnerKey) {
			t.Errorf("a member signs as an owner: %v", err)
		}
		owner = handOn(t, owner, run, now)
	}
}

// handOn makes another node an owner, until half a year before the memberships that it would grant; the zero Owner if
// its chain is too long.
func handOn(t *testing.T, from Owner, run Run, now time.Time) Owner {
	t.Helper()
	id := testIdentity(t)
	v, err := from.Invite(InviteOptions{Run: testRun, Owner: true, MemberTTL: 180 * 24 * time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Redeem(id, now)
	if err != nil {
		t.Fatal(err)
	}
	o, err := OwnerBy(id, b, run.OwnerKey)
	if err != nil {
		if !strings.Contains(err.Error(), "handed on") {
			t.Error(err)
		}
		return Owner{}
	}
	w, err := o.Invite(InviteOptions{Run: testRun}, now)
	if err != nil || w.Grant.Expires.After(now.Add(181*24*time.Hour)) {
		t.Errorf("a grant beyond its owner's end: %v %v", w.Grant.Expires, err)
	}
	return o
}

// A node that only says that it is an owner signs nothing that counts.
func TestForgedIssuer(t *testing.T) {
	now, root, member := time.Now(), testOwner(t), testIdentity(t)
	run := Run{testRun, root.PublicKey()}
	v, err := root.Invite(InviteOptions{Run: testRun}, now)
	if err != nil {
		t.Fatal(err)
	}
	own, err := v.Redeem(member, now)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := member.key.Raw()
	forged := Owner{key: key, issuer: own, root: root.PublicKey(), until: now.Add(time.Hour)}
	w, err := forged.Invite(InviteOptions{Run: testRun}, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Grant.Verify(run, now); !errors.Is(err, ErrSignature) {
		t.Errorf("a member's grant: %v", err)
	}
	stranger := Owner{key: mustKey(t), root: root.PublicKey()}
	if w, err = stranger.Invite(InviteOptions{Run: testRun}, now); err != nil || !errors.Is(w.Grant.Verify(run, now), ErrSignature) {
		t.Errorf("a stranger's grant: %v", err)
	}
}

func mustKey(t *testing.T) []byte {
	key, err := testIdentity(t).key.Raw()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A newcomer whose clock is a day ahead leaves it to the members whether the invite is open.
func TestRedeemWithAClockAhead(t *testing.T) {
	owner, now := testOwner(t), time.Now()
	v, err := owner.Invite(InviteOptions{Run: testRun, TTL: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Redeem(testIdentity(t), now.Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := DecodeCapability(b); err != nil || c.Verify(Run{testRun, owner.PublicKey()}, now) != nil {
		t.Errorf("its capability: %v", err)
	}
}
