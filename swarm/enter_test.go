package swarm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pnode/swarm/admission"
	"pnode/swarm/host"
)

// enter comes into a run by an invite, as a new node does: it asks the contact for the run and the grant, redeems the
// invite and connects. Without a right there is no swarm, only the error.
func enter(t *testing.T, id admission.Identity, v admission.Invite, sim *host.Simulated) (*Swarm, error) {
	t.Helper()
	ctx := testContext(t)
	v, err := Claim(ctx, Config{Identity: id, Simulated: sim}, v)
	if err != nil {
		return nil, err
	}
	capability, err := v.Redeem(id, time.Now())
	if err != nil {
		return nil, err
	}
	s := start(t, Config{
		Identity: id, Run: v.Grant.Run, OwnerKey: v.OwnerKey, Capability: capability,
		Bootstrap: v.Addrs, Logger: testLogger(t), Simulated: sim,
	})
	return s, s.Connect(ctx, v.Addrs...)
}

func TestEnterNeedsInvite(t *testing.T) {
	a := cluster(t, 1)[0]
	v, err := admission.ParseInvite(a.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = enter(t, testIdentity(t), v, nil)
	if !errors.Is(err, admission.ErrNeedsInvite) || !strings.Contains(err.Error(), "this run needs an invite") {
		t.Errorf("enter with an address: %v", err)
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
	before := a.host.Network().ConnsToPeer(b.host.ID())
	if len(before) == 0 {
		t.Fatal("there is no connection that could look alive")
	}
	again := start(t, cfg)
	if err := again.Connect(ctx, a.Addrs()...); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, ctx, a, before)
	serveEcho(a)
	call(t, ctx, again, a)
}

func TestBlock(t *testing.T) {
	c := cluster(t, 3)
	ctx := testContext(t)
	conn, err := c[0].Data().Dial(ctx, c[1].ID(), "")
	if err != nil {
		t.Fatal(err)
	}
	c[0].Block(c[1].ID(), admission.ErrBlocked)
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
