package swarm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// creator starts a run's first node, which holds the owner key.
func creator(t *testing.T) *Swarm {
	t.Helper()
	o := testOwner(t)
	cfg := testMember(t, o, testRun)
	cfg.Owner = o
	return start(t, cfg)
}

func invite(t *testing.T, s *Swarm, opt InviteOptions) Invite {
	t.Helper()
	v, err := s.Invite(opt)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseInvite(v.String())
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// member starts a node with the capability an invite gave it.
func member(t *testing.T, id Identity, v Invite, capability []byte) *Swarm {
	t.Helper()
	return start(t, Config{
		Identity: id, Run: v.Grant.Run, OwnerKey: v.OwnerKey, Capability: capability, Logger: testLogger(t),
	})
}

func TestJoinByInvite(t *testing.T) {
	a := creator(t)
	ctx := testContext(t)
	v := invite(t, a, InviteOptions{})
	id := testIdentity(t)
	capability, err := Join(ctx, id, v)
	if err != nil {
		t.Fatal(err)
	}
	b := member(t, id, v, capability)
	if err := b.Connect(ctx, v.Addrs...); err != nil {
		t.Fatal(err)
	}
	waitMembers(t, ctx, a, 1)
	if m := a.Members()[0]; m.Peer != b.ID() || m.Role != RoleMember || m.Serial != v.Grant.Serial {
		t.Errorf("member %+v", m)
	}
	// The same peer may join again; another may not.
	if _, err := Join(ctx, id, v); err != nil {
		t.Errorf("joining twice: %v", err)
	}
	if _, err := Join(ctx, testIdentity(t), v); !errors.Is(err, ErrInviteUsed) {
		t.Errorf("second peer on an invite for one: %v", err)
	}
	if _, err := b.Invite(InviteOptions{}); !errors.Is(err, ErrNoOwnerKey) {
		t.Errorf("invite by a member: %v", err)
	}
}

// Any member checks an invite; the creator may be gone.
func TestJoinWithoutCreator(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	v := invite(t, c[0], InviteOptions{Addrs: append(c[0].Addrs(), c[1].Addrs()...), Uses: 2})
	if err := c[0].Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id := testIdentity(t)
		capability, err := Join(ctx, id, v)
		if err != nil {
			t.Fatal(err)
		}
		if err := member(t, id, v, capability).Connect(ctx, c[1].Addrs()...); err != nil {
			t.Fatal(err)
		}
	}
	waitMembers(t, ctx, c[1], 2)
	_, err := Join(ctx, testIdentity(t), v)
	if !errors.Is(err, ErrInviteUsed) || !strings.Contains(err.Error(), "it was for 2") {
		t.Errorf("third peer on an invite for two: %v", err)
	}
}

func TestJoinNeedsInvite(t *testing.T) {
	a := creator(t)
	v, err := ParseInvite(a.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = Join(testContext(t), testIdentity(t), v)
	if !errors.Is(err, ErrNeedsInvite) || !strings.Contains(err.Error(), "this run needs an invite") {
		t.Errorf("join with an address: %v", err)
	}
}

func TestJoinNobodyThere(t *testing.T) {
	t.Parallel()
	a := creator(t)
	v := invite(t, a, InviteOptions{})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Join(testContext(t), testIdentity(t), v)
	if err == nil || !strings.Contains(err.Error(), "no member answers at") {
		t.Errorf("join with nobody there: %v", err)
	}
}

// An expired invite is refused here, and there when a joiner does not say so itself.
func TestJoinExpired(t *testing.T) {
	a := creator(t)
	id := testIdentity(t)
	v, err := a.cfg.Owner.Invite(InviteOptions{Run: testRun, Addrs: a.Addrs(), TTL: time.Hour}, time.Now().Add(-4*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := "invite expired 3h ago; ask for a new one with `pnode invite`"
	if _, err := Join(testContext(t), id, v); !errors.Is(err, ErrInviteExpired) || !strings.Contains(err.Error(), want) {
		t.Errorf("expired invite: %v", err)
	}
	capability := bind(v.Grant, v.bearer, id.id).Encode()
	_, err = present(t, a, id, v, capability)
	if !errors.Is(err, ErrInviteExpired) || !strings.Contains(err.Error(), want) {
		t.Errorf("expired invite, redeemed anyway: %v", err)
	}
}

// present shows a capability on /pnode/join/1 without any check on this side.
func present(t *testing.T, to *Swarm, id Identity, v Invite, capability []byte) (bool, error) {
	t.Helper()
	h, err := joiningHost(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	return ask(testContext(t), h, peer.AddrInfo{ID: to.host.ID(), Addrs: to.host.Addrs()}, v, capability)
}

func TestJoinRefusals(t *testing.T) {
	a := creator(t)
	now := time.Now()
	id, other := testIdentity(t), testIdentity(t)
	own := a.cfg.Owner
	grant := func(o Owner, opt InviteOptions, at time.Time) Invite {
		v, err := o.Invite(opt, at)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	good := grant(own, InviteOptions{Run: testRun}, now)
	elsewhere := grant(own, InviteOptions{Run: "anotherrun"}, now)
	stranger := grant(testOwner(t), InviteOptions{Run: testRun}, now)
	ended := grant(own, InviteOptions{Run: testRun, TTL: time.Hour, MemberTTL: 2 * time.Hour}, now.Add(-3*time.Hour))
	longer := good
	longer.Grant.Expires = longer.Grant.Expires.Add(time.Hour)
	more := good
	more.Grant.Uses = 100
	for name, c := range map[string]struct {
		capability []byte
		want       error
	}{
		"none":              {nil, ErrNeedsInvite},
		"wrong run":         {bind(elsewhere.Grant, elsewhere.bearer, id.id).Encode(), ErrWrongRun},
		"another owner":     {bind(stranger.Grant, stranger.bearer, id.id).Encode(), ErrSignature},
		"later expiry":      {bind(longer.Grant, longer.bearer, id.id).Encode(), ErrSignature},
		"more uses":         {bind(more.Grant, more.bearer, id.id).Encode(), ErrSignature},
		"no bearer key":     {bind(good.Grant, stranger.bearer, id.id).Encode(), ErrSignature},
		"another's":         {bind(good.Grant, good.bearer, other.id).Encode(), ErrSignature},
		"membership over":   {bind(ended.Grant, ended.bearer, id.id).Encode(), ErrCapabilityExpired},
		"cut short":         {bind(good.Grant, good.bearer, id.id).Encode()[:100], ErrMalformed},
		"followed by bytes": {append(bind(good.Grant, good.bearer, id.id).Encode(), 0), ErrMalformed},
	} {
		answered, err := present(t, a, id, good, c.capability)
		if !answered || !errors.Is(err, c.want) {
			t.Errorf("%s: answered %v, %v; want %v", name, answered, err, c.want)
		}
		t.Logf("%s: %v", name, err)
	}
	if answered, err := present(t, a, id, good, bind(good.Grant, good.bearer, id.id).Encode()); !answered || err != nil {
		t.Errorf("good: %v", err)
	}
	// A joiner notices that it reached another run.
	if answered, err := present(t, a, id, stranger, bind(good.Grant, good.bearer, id.id).Encode()); answered || !errors.Is(err, ErrSignature) {
		t.Errorf("member of another run: %v", err)
	}
}

// A member of another run that dials as a member is refused with the reason.
func TestConnectOtherRun(t *testing.T) {
	o := testOwner(t)
	a, b := start(t, testMember(t, o, testRun)), start(t, testMember(t, o, "anotherrun"))
	if err := b.Connect(testContext(t), a.Addrs()...); !errors.Is(err, ErrWrongRun) {
		t.Errorf("connect to another run: %v", err)
	}
	if len(a.Members())+len(b.Members()) != 0 {
		t.Error("a peer of another run is a member")
	}
}

// The caller's own rule is asked, and its reason reaches the other side.
func TestAdmitRule(t *testing.T) {
	o := testOwner(t)
	cfg := testMember(t, o, testRun)
	cfg.Admit = func(c Capability) error { return errors.New("the roster is full") }
	a, b := start(t, cfg), start(t, testMember(t, o, testRun))
	err := b.Connect(testContext(t), a.Addrs()...)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the roster is full") {
		t.Errorf("connect: %v", err)
	}
}

// A restarted node is a member again at once, though its old connection looks alive.
func TestRestart(t *testing.T) {
	o := testOwner(t)
	a := start(t, testMember(t, o, testRun))
	cfg := testMember(t, o, testRun)
	ctx := testContext(t)
	b := start(t, cfg)
	if err := b.Connect(ctx, a.Addrs()...); err != nil {
		t.Fatal(err)
	}
	b.tasks.close() // as after a crash: it does nothing more, and a still holds its connection
	t.Cleanup(func() { b.host.close() })
	again := start(t, cfg)
	if err := again.Connect(ctx, a.Addrs()...); err != nil {
		t.Fatal(err)
	}
	waitOneConn(t, ctx, a, again)
	serveEcho(a)
	call(t, ctx, again, a)
}

func TestBlock(t *testing.T) {
	c := cluster(t, 3)
	ctx := testContext(t)
	conn, err := c[0].Data().Dial(ctx, c[1].ID())
	if err != nil {
		t.Fatal(err)
	}
	c[0].Block(c[1].ID())
	waitMembers(t, ctx, c[0], 1)
	waitMembers(t, ctx, c[1], 1)
	<-conn.Context().Done()
	if err := c[1].Connect(ctx, c[0].Addrs()...); !errors.Is(err, ErrBlocked) {
		t.Errorf("a blocked peer connects: %v, want it to be told why not", err)
	}
	if _, err := c[0].Open(ctx, c[1].ID(), "/pnode/test/1"); !errors.Is(err, ErrBlocked) {
		t.Errorf("open to a blocked peer: %v", err)
	}
}
