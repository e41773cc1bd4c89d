package handshake

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"pnode/planner/plan"
	"pnode/swarm/admission"
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
	listen, err := host.ParseListen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Peers, cfg.Store, cfg.Tasks = admission.NewPeers(), peerstore.New(), tasks.New()
	cfg.Log, cfg.Joined, cfg.Left = slog.New(slog.DiscardHandler), func(peer.ID) {}, func() {}
	h, err := host.New(host.Config{Identity: id, Listen: []host.Addr{listen}, Peers: cfg.Peers, Tasks: cfg.Tasks})
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

// meet connects two greeters and returns what the dialing one learns of itself.
func meet(t *testing.T, dialer, other Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	to := peer.AddrInfo{ID: other.Host.ID(), Addrs: other.Host.Addrs()}
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

func anyUse(admission.Capability) error { return nil }

// The other side's reason reaches the peer that is refused.
func TestRefusals(t *testing.T) {
	owner, now := testOwner(t), time.Now()
	run := admission.Run{ID: testRun, OwnerKey: owner.PublicKey()}
	first := testIdentity(t)
	member := Config{Run: run, Capability: capability(t, owner, testRun, first, now), Uses: anyUse}
	a := greeter(t, first, member)
	id := testIdentity(t)
	good := capability(t, owner, testRun, id, now)
	for name, c := range map[string]struct {
		shown []byte
		want  error
	}{
		"none":            {nil, admission.ErrNeedsInvite},
		"wrong run":       {capability(t, owner, "anotherrun", id, now), admission.ErrWrongRun},
		"another owner":   {capability(t, testOwner(t), testRun, id, now), admission.ErrSignature},
		"another's":       {capability(t, owner, testRun, testIdentity(t), now), admission.ErrSignature},
		"membership over": {capability(t, owner, testRun, id, now.Add(-2*time.Hour)), admission.ErrCapabilityExpired},
		"cut short":       {good[:100], admission.ErrMalformed},
	} {
		b := greeter(t, id, Config{Run: run, Capability: c.shown, Uses: anyUse})
		if err := meet(t, b, a); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want to be told %v", name, err, c.want)
		}
		if n := len(a.Peers.Members()) + len(b.Peers.Members()); n != 0 {
			t.Errorf("%s: %d members", name, n)
		}
	}
	if err := meet(t, greeter(t, id, Config{Run: run, Capability: good, Uses: anyUse}), a); err != nil {
		t.Errorf("good: %v", err)
	}
	// A node that is welcome notices that it reached another run.
	lost := testIdentity(t)
	elsewhere := Config{
		Run:        admission.Run{ID: testRun, OwnerKey: testOwner(t).PublicKey()},
		Capability: capability(t, owner, testRun, lost, now), Uses: anyUse,
	}
	if err := meet(t, greeter(t, lost, elsewhere), a); !errors.Is(err, admission.ErrSignature) {
		t.Errorf("member of another run: %v", err)
	}
}

// The caller's own rule is asked, and its reason reaches the other side.
func TestUsesRule(t *testing.T) {
	owner, now := testOwner(t), time.Now()
	run := admission.Run{ID: testRun, OwnerKey: owner.PublicKey()}
	for _, c := range []struct {
		uses  func(admission.Capability) error
		want  error
		words string
	}{
		{func(admission.Capability) error { return errors.New("the roster is full") }, admission.ErrRefused, "the roster is full"},
		{
			func(c admission.Capability) error { return c.Redeemable(now.Add(4 * time.Hour)) }, admission.ErrInviteExpired,
			"invite expired 3h ago; ask for a new one with `pnode invite`",
		},
	} {
		first, second := testIdentity(t), testIdentity(t)
		a := greeter(t, first, Config{Run: run, Capability: capability(t, owner, testRun, first, now), Uses: c.uses})
		b := greeter(t, second, Config{Run: run, Capability: capability(t, owner, testRun, second, now), Uses: anyUse})
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
	a := greeter(t, first, Config{Run: run, Capability: capability(t, owner, testRun, first, now), Uses: anyUse})
	a.Host.SetStreamHandler(protocol.ID("/pnode/hello/2"), nil)
	a.Host.RemoveStreamHandler(helloProtocol)
	b := greeter(t, second, Config{Run: run, Capability: capability(t, owner, testRun, second, now), Uses: anyUse})
	err := meet(t, b, a)
	if !errors.Is(err, version.Err) || !admission.IsRefusal(err) || !strings.Contains(err.Error(), "/pnode/hello") || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("connect: %v", err)
	}
}
