package handshake

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/bearer"
	"pnode/swarm/host"
	"pnode/swarm/peerstore"
	"pnode/swarm/tasks"
	"pnode/swarm/version"
)

const testRun plan.RunID = "testrun"

func testOwner(t *testing.T) admission.Owner {
	t.Helper()
	o, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func testIdentity(t *testing.T) admission.Identity {
	t.Helper()
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func capability(t *testing.T, o admission.Owner, run plan.RunID, id admission.Identity, from time.Time) []byte {
	t.Helper()
	c, err := o.Capability(run, id, time.Hour, from)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// greeter starts a host that greets as cfg says.
func greeter(t *testing.T, id admission.Identity, cfg Config) Config {
	t.Helper()
	cfg.Peers, cfg.Store, cfg.Tasks = admission.NewPeers(), peerstore.New(), tasks.New()
	cfg.Log, cfg.Joined, cfg.Left = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), func(peer.ID) {}, func(peer.ID) {}
	h, err := host.New(host.Config{Identity: id, Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Peers: cfg.Peers, Tasks: cfg.Tasks})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Host = h
	if err := Start(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cfg.Tasks.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		cfg.Tasks.Wait()
	})
	return cfg
}

// meet connects two greeters and returns what the dialing one learns of itself. It dials one address: where a machine is
// busy two make two connections, and each of them greets.
func meet(t *testing.T, dialer, other Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	to := peer.AddrInfo{ID: other.Host.ID(), Addrs: other.Host.Addrs()[:1]}
	dialer.Store.Seed(to.ID, to.Addrs)
	if err := dialer.Host.Connect(ctx, to); err != nil {
		t.Fatal(err)
	}
	err := dialer.Peers.Wait(ctx, to.ID)
	if why := dialer.Store.Refusal(to.ID); errors.Is(err, admission.ErrNotMember) && why != nil {
		err = why // it has hung up already
	}
	return err
}

func anyUse(context.Context, admission.Capability) error { return nil }

// refusals is a log that keeps the lines about refused peers.
type refusals chan string

func (r refusals) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "peer refused") {
		r <- string(b)
	}
	return len(b), nil
}

// issue makes an invite at a time and the capability of a peer that redeems it then.
func issue(t *testing.T, o admission.Owner, opt admission.InviteOptions, id admission.Identity, at time.Time) (admission.Invite, []byte) {
	t.Helper()
	opt.Addrs = []string{"/ip4/192.0.2.1/udp/1/quic-v1/p2p/" + id.ID().String()}
	v, err := o.Invite(opt, at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := v.Redeem(id, at)
	if err != nil {
		t.Fatal(err)
	}
	return v, c
}

// Where the fields of a capability for testRun begin: its grant, with the owner's signature, then the peer.
const (
	usesAt    = 2
	expiresAt = 20
	grantEnd  = 60 + 2 + len(testRun) + 2 + ed25519.SignatureSize
)

// forge changes the grant of a capability and binds its peer to that with the bearer key of an invite, as whoever
// holds the invite can.
func forge(t *testing.T, capability []byte, with admission.Invite, change func(grant []byte)) []byte {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(with.String(), "pnode1-"))
	if err != nil {
		t.Fatal(err)
	}
	seed := sha256.Sum256(append([]byte("pnode invite\x00"), text[:16]...))
	body := bytes.Clone(capability[:len(capability)-ed25519.SignatureSize])
	change(body[:grantEnd])
	id, err := peer.IDFromBytes(body[grantEnd+2:])
	if err != nil {
		t.Fatal(err)
	}
	return append(body, bearer.Bind(ed25519.NewKeyFromSeed(seed[:]), body[:grantEnd], plan.PeerID(id.String()))...)
}

// The other side's reason reaches the peer that is refused, whatever it shows.
func TestRefusals(t *testing.T) {
	owner, now := testOwner(t), time.Now()
	run := admission.Run{ID: testRun, OwnerKey: owner.PublicKey()}
	first, id := testIdentity(t), testIdentity(t)
	log := make(refusals, 64)
	a := greeter(t, first, Config{
		Run: run, Capability: capability(t, owner, testRun, first, now), Admit: anyUse, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	opt := admission.InviteOptions{Run: testRun}
	invite, good := issue(t, owner, opt, id, now)
	stranger, foreign := issue(t, testOwner(t), opt, id, now)
	_, others := issue(t, owner, opt, testIdentity(t), now)
	_, otherRun := issue(t, owner, admission.InviteOptions{Run: "anotherrun"}, id, now)
	_, ended := issue(t, owner, admission.InviteOptions{Run: testRun, TTL: time.Hour, MemberTTL: 2 * time.Hour}, id, now.Add(-3*time.Hour))
	asIs := func([]byte) {}
	if !bytes.Equal(forge(t, good, invite, asIs), good) {
		t.Fatal("a forger does not know the form of a capability")
	}
	for name, c := range map[string]struct {
		shown []byte
		want  error
	}{
		"none":              {nil, admission.ErrNeedsInvite},
		"wrong run":         {otherRun, admission.ErrWrongRun},
		"another owner":     {foreign, admission.ErrSignature},
		"later expiry":      {forge(t, good, invite, func(grant []byte) { grant[expiresAt+3]++ }), admission.ErrSignature},
		"more uses":         {forge(t, good, invite, func(grant []byte) { grant[usesAt] = 100 }), admission.ErrSignature},
		"no bearer key":     {forge(t, good, stranger, asIs), admission.ErrSignature},
		"another's":         {others, admission.ErrSignature},
		"membership over":   {ended, admission.ErrCapabilityExpired},
		"cut short":         {good[:100], admission.ErrMalformed},
		"followed by bytes": {append(bytes.Clone(good), 0), admission.ErrMalformed},
		"newer version":     {append([]byte{good[0] + 1}, good[1:]...), admission.ErrMalformed},
	} {
		b := greeter(t, id, Config{Run: run, Capability: c.shown, Admit: anyUse})
		if err := meet(t, b, a); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want to be told %v", name, err, c.want)
		}
		if n := len(a.Peers.Members()) + len(b.Peers.Members()); n != 0 {
			t.Errorf("%s: %d members", name, n)
		}
		if n := len(log); n != 1 {
			t.Errorf("%s: refused %d times by the other side, want once", name, n)
		}
		for len(log) > 0 {
			t.Logf("%s: %s", name, <-log)
		}
	}
	if err := meet(t, greeter(t, id, Config{Run: run, Capability: good, Admit: anyUse}), a); err != nil {
		t.Errorf("good: %v", err)
	}
	// A node that is welcome notices that it reached another run.
	lost := testIdentity(t)
	elsewhere := Config{
		Run:        admission.Run{ID: testRun, OwnerKey: testOwner(t).PublicKey()},
		Capability: capability(t, owner, testRun, lost, now), Admit: anyUse,
	}
	if err := meet(t, greeter(t, lost, elsewhere), a); !errors.Is(err, admission.ErrSignature) {
		t.Errorf("member of another run: %v", err)
	}
	if len(log) != 0 {
		t.Errorf("the other side refused who is welcome: %s", <-log)
	}
}

// The caller's own rule is asked, and its reason reaches the other side.
func TestUsesRule(t *testing.T) {
	owner, now := testOwner(t), time.Now()
	run := admission.Run{ID: testRun, OwnerKey: owner.PublicKey()}
	for _, c := range []struct {
		uses  func(context.Context, admission.Capability) error
		want  error
		words string
	}{
		{func(context.Context, admission.Capability) error { return errors.New("the roster is full") }, admission.ErrRefused, "the roster is full"},
		{
			func(_ context.Context, c admission.Capability) error { return c.Redeemable(now.Add(4 * time.Hour)) }, admission.ErrInviteExpired,
			"invite expired 3 h ago; ask for a new one with `pnode invite`",
		},
	} {
		first, second := testIdentity(t), testIdentity(t)
		a := greeter(t, first, Config{Run: run, Capability: capability(t, owner, testRun, first, now), Admit: c.uses})
		b := greeter(t, second, Config{Run: run, Capability: capability(t, owner, testRun, second, now), Admit: anyUse})
		if err := meet(t, b, a); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("connect: %v, want to be told %q", err, c.words)
		}
	}
}

// A peer that greets in another version is refused at once, with both versions and what to fetch.
func TestAnotherVersionOfTheGreeting(t *testing.T) {
	owner, now := testOwner(t), time.Now()
	run := admission.Run{ID: testRun, OwnerKey: owner.PublicKey()}
	first, second := testIdentity(t), testIdentity(t)
	a := greeter(t, first, Config{Run: run, Capability: capability(t, owner, testRun, first, now), Admit: anyUse})
	a.Host.SetStreamHandler(protocol.ID("/pnode/hello/2"), nil)
	a.Host.RemoveStreamHandler(helloProtocol)
	b := greeter(t, second, Config{Run: run, Capability: capability(t, owner, testRun, second, now), Admit: anyUse})
	err := meet(t, b, a)
	if !errors.Is(err, version.Err) || !admission.IsRefusal(err) || !strings.Contains(err.Error(), "/pnode/hello") || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("connect: %v", err)
	}
}
