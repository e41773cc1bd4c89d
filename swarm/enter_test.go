package swarm

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/admission"
	"pnode/swarm/host"
)

// creator starts a run's first node, which holds the owner key.
func creator(t *testing.T) *Swarm { return cluster(t, 1)[0] }

func invite(t *testing.T, s *Swarm, opt admission.InviteOptions) admission.Invite {
	t.Helper()
	v, err := s.Invite(opt)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := admission.ParseInvite(v.String())
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// enter comes into a run by an invite, as a new node does: it redeems the invite and connects
// to the nodes at its addresses. Without a right there is no swarm, only the error.
func enter(t *testing.T, id admission.Identity, v admission.Invite, sim *host.Simulated) (*Swarm, error) {
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
	v := invite(t, a, admission.InviteOptions{})
	id := testIdentity(t)
	b, err := enter(t, id, v, nil)
	if err != nil {
		t.Fatal(err)
	}
	waitMembers(t, ctx, a, 1)
	if m := a.Members()[0]; m.Peer != b.ID() || m.Role != admission.RoleMember || m.Serial != v.Grant.Serial {
		t.Errorf("member %+v", m)
	}
	if _, err := b.Invite(admission.InviteOptions{}); !errors.Is(err, admission.ErrNoOwnerKey) {
		t.Errorf("invite by a member: %v", err)
	}
	// The same peer may enter again; another may not, though the place looks free.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	waitMembers(t, ctx, a, 0)
	if _, err := enter(t, testIdentity(t), v, nil); !errors.Is(err, admission.ErrInviteUsed) {
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
func TestVirtualEnterWithoutCreator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		c := n.cluster(t, 2)
		v := invite(t, c[0], admission.InviteOptions{Addrs: append(c[0].Addrs(), c[1].Addrs()...), Uses: 2})
		if err := c[0].Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := enter(t, testIdentity(t), v, n.host()); err != nil {
				t.Fatal(err)
			}
		}
		waitMembers(t, testContext(t), c[1], 2)
		_, err := enter(t, testIdentity(t), v, n.host())
		if !errors.Is(err, admission.ErrInviteUsed) || !strings.Contains(err.Error(), "it was for 2") {
			t.Errorf("third peer on an invite for two: %v", err)
		}
	})
}

func TestEnterNeedsInvite(t *testing.T) {
	a := creator(t)
	v, err := admission.ParseInvite(a.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = enter(t, testIdentity(t), v, nil)
	if !errors.Is(err, admission.ErrNeedsInvite) || !strings.Contains(err.Error(), "this run needs an invite") {
		t.Errorf("enter with an address: %v", err)
	}
}

// That nobody answers is no verdict.
func TestVirtualEnterNobodyThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		a := n.cluster(t, 1)[0]
		v := invite(t, a, admission.InviteOptions{})
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := enter(t, testIdentity(t), v, n.host())
		if err == nil || admission.IsRefusal(err) || !strings.Contains(err.Error(), string(a.ID())) {
			t.Errorf("enter with nobody there: %v", err)
		}
	})
}

const expiredWords = "invite expired 3h ago; ask for a new one with `pnode invite`"

// expiredInvite is one that ended three hours ago.
func expiredInvite(t *testing.T, o admission.Owner) admission.Invite {
	t.Helper()
	v, err := o.Invite(admission.InviteOptions{Run: testRun, TTL: time.Hour}, time.Now().Add(-4*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEnterExpired(t *testing.T) {
	v := expiredInvite(t, testOwner(t))
	if _, err := enter(t, testIdentity(t), v, nil); !errors.Is(err, admission.ErrInviteExpired) || !strings.Contains(err.Error(), expiredWords) {
		t.Errorf("expired invite: %v", err)
	}
}

// A member of another run that dials as a member is refused with the reason.
func TestConnectOtherRun(t *testing.T) {
	o := testOwner(t)
	a, b := start(t, testMember(t, o, testRun)), start(t, testMember(t, o, "anotherrun"))
	if err := b.Connect(testContext(t), a.Addrs()...); !errors.Is(err, admission.ErrWrongRun) {
		t.Errorf("connect to another run: %v", err)
	}
	if len(a.Members())+len(b.Members()) != 0 {
		t.Error("a peer of another run is a member")
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
	b.tasks.Close() // as after a crash: it does nothing more, and a still holds its connection
	t.Cleanup(func() { b.host.Close() })
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
	if err := c[1].Connect(ctx, c[0].Addrs()...); !errors.Is(err, admission.ErrBlocked) {
		t.Errorf("a blocked peer connects: %v, want it to be told why not", err)
	}
	if _, err := c[0].Open(ctx, c[1].ID(), "/pnode/test/1"); !errors.Is(err, admission.ErrBlocked) {
		t.Errorf("open to a blocked peer: %v", err)
	}
}
