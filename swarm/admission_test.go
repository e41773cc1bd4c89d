package swarm

import (
	"errors"
	"strings"
	"testing"
	"time"
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

// enter comes into a run by an invite, as a new node does: it redeems the invite and connects
// to the nodes at its addresses. Without a right there is no swarm, only the error.
func enter(t *testing.T, id Identity, v Invite, sim *simulated) (*Swarm, error) {
	t.Helper()
	capability, err := v.Redeem(id, time.Now())
	if err != nil {
		return nil, err
	}
	s := start(t, Config{
		Identity: id, Run: v.Grant.Run, OwnerKey: v.OwnerKey, Capability: capability,
		Bootstrap: v.Addrs, Logger: testLogger(t), simulated: sim,
	})
	return s, s.Connect(testContext(t), v.Addrs...)
}

func TestEnterByInvite(t *testing.T) {
	a := creator(t)
	ctx := testContext(t)
	v := invite(t, a, InviteOptions{})
	id := testIdentity(t)
	b, err := enter(t, id, v, nil)
	if err != nil {
		t.Fatal(err)
	}
	waitMembers(t, ctx, a, 1)
	if m := a.Members()[0]; m.Peer != b.ID() || m.Role != RoleMember || m.Serial != v.Grant.Serial {
		t.Errorf("member %+v", m)
	}
	if _, err := b.Invite(InviteOptions{}); !errors.Is(err, ErrNoOwnerKey) {
		t.Errorf("invite by a member: %v", err)
	}
	// The same peer may enter again; another may not, though the place looks free.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	waitMembers(t, ctx, a, 0)
	if _, err := enter(t, testIdentity(t), v, nil); !errors.Is(err, ErrInviteUsed) {
		t.Errorf("second peer on an invite for one: %v", err)
	}
	if n := len(a.Members()); n != 0 {
		t.Errorf("%d members after the refusal", n)
	}
	if _, err := enter(t, id, v, nil); err != nil {
		t.Errorf("entering twice: %v", err)
	}
}

// Any member checks an invite; the creator may be gone.
func TestEnterWithoutCreator(t *testing.T) {
	c := cluster(t, 2)
	v := invite(t, c[0], InviteOptions{Addrs: append(c[0].Addrs(), c[1].Addrs()...), Uses: 2})
	if err := c[0].Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := enter(t, testIdentity(t), v, nil); err != nil {
			t.Fatal(err)
		}
	}
	waitMembers(t, testContext(t), c[1], 2)
	_, err := enter(t, testIdentity(t), v, nil)
	if !errors.Is(err, ErrInviteUsed) || !strings.Contains(err.Error(), "it was for 2") {
		t.Errorf("third peer on an invite for two: %v", err)
	}
}

func TestEnterNeedsInvite(t *testing.T) {
	a := creator(t)
	v, err := ParseInvite(a.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = enter(t, testIdentity(t), v, nil)
	if !errors.Is(err, ErrNeedsInvite) || !strings.Contains(err.Error(), "this run needs an invite") {
		t.Errorf("enter with an address: %v", err)
	}
}

// That nobody answers is no verdict.
func TestEnterNobodyThere(t *testing.T) {
	t.Parallel()
	a := creator(t)
	v := invite(t, a, InviteOptions{})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := enter(t, testIdentity(t), v, nil)
	if err == nil || IsRefusal(err) || !strings.Contains(err.Error(), string(a.ID())) {
		t.Errorf("enter with nobody there: %v", err)
	}
}

const expiredWords = "invite expired 3h ago; ask for a new one with `pnode invite`"

// expiredInvite is one that ended three hours ago.
func expiredInvite(t *testing.T, o Owner) Invite {
	t.Helper()
	v, err := o.Invite(InviteOptions{Run: testRun, TTL: time.Hour}, time.Now().Add(-4*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEnterExpired(t *testing.T) {
	v := expiredInvite(t, testOwner(t))
	if _, err := enter(t, testIdentity(t), v, nil); !errors.Is(err, ErrInviteExpired) || !strings.Contains(err.Error(), expiredWords) {
		t.Errorf("expired invite: %v", err)
	}
}

// knock connects as a node that shows what change left in its configuration, unchecked.
func knock(t *testing.T, to *Swarm, id Identity, change func(*Config)) error {
	t.Helper()
	own, err := to.cfg.Owner.Capability(to.cfg.Run, id, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{Identity: id, Run: to.cfg.Run, OwnerKey: to.cfg.OwnerKey, Capability: own, Logger: testLogger(t)})
	defer s.Close()
	change(&s.cfg) // before there is a greeting that reads it
	return s.Connect(testContext(t), to.Addrs()...)
}

// told tells whether a refusal is the other side's.
func told(err error) bool {
	var refusal *remoteRefusal
	return errors.As(err, &refusal)
}

func TestRefusals(t *testing.T) {
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
		err := knock(t, a, id, func(cfg *Config) { cfg.Capability = c.capability })
		if !errors.Is(err, c.want) || !told(err) {
			t.Errorf("%s: %v; want to be told %v", name, err, c.want)
		}
		if n := len(a.Members()); n != 0 {
			t.Errorf("%s: %d members", name, n)
		}
		t.Logf("%s: %v", name, err)
	}
	show := bind(good.Grant, good.bearer, id.id).Encode()
	if err := knock(t, a, id, func(cfg *Config) { cfg.Capability = show }); err != nil {
		t.Errorf("good: %v", err)
	}
	// A node that is welcome notices that it reached another run.
	err := knock(t, a, id, func(cfg *Config) { cfg.Capability, cfg.OwnerKey = show, stranger.OwnerKey })
	if !errors.Is(err, ErrSignature) || told(err) {
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
	o, id := testOwner(t), testIdentity(t)
	late := expiredInvite(t, o)
	capability := bind(late.Grant, late.bearer, id.id).Encode() // redeemed all the same
	for _, c := range []struct {
		admit func(Capability) error
		want  error
		words string
	}{
		{func(Capability) error { return errors.New("the roster is full") }, ErrRefused, "the roster is full"},
		{func(c Capability) error { return c.Redeemable(time.Now()) }, ErrInviteExpired, expiredWords},
	} {
		cfg := testMember(t, o, testRun)
		cfg.Owner, cfg.Admit = o, c.admit
		err := knock(t, start(t, cfg), id, func(cfg *Config) { cfg.Capability = capability })
		if !errors.Is(err, c.want) || !told(err) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("connect: %v, want to be told %q", err, c.words)
		}
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
