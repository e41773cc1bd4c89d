package admission

import (
	"context"
	"errors"
	"testing"
	"time"
)

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// expired is a context that lets through only what is there already.
func expired() context.Context {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	cancel()
	return ctx
}

func gone() bool { return false }

func connected() bool { return true }

// A stream that comes before the verdict waits for it, whichever it is.
func TestPeersWait(t *testing.T) {
	p := testIdentity(t).ID()
	ctx := testContext(t)
	d := NewPeers()
	if err := d.Wait(ctx, p); !errors.Is(err, ErrNotMember) {
		t.Errorf("not connected: %v", err)
	}
	d.Arrive(p)
	if err := d.Wait(expired(), p); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("undecided: %v", err)
	}
	verdict := make(chan error, 1)
	go func() { verdict <- d.Wait(ctx, p) }()
	if _, _, err := d.Admit(p, Capability{}, Instance{}); err != nil {
		t.Fatal(err)
	}
	if err := <-verdict; err != nil {
		t.Errorf("admitted: %v", err)
	}
	d.Refuse(p, ErrSignature) // a late refusal
	if !d.Member(p) {
		t.Error("a member was refused")
	}
	if d.Leave(p, connected) || !d.Member(p) {
		t.Error("left while connected")
	}
	if !d.Leave(p, gone) || d.Member(p) {
		t.Error("still a member after leaving")
	}
}

// A visit that ended is not mistaken for the next one: its guard lets that one be.
func TestPeersVisits(t *testing.T) {
	p := testIdentity(t).ID()
	d := NewPeers()
	v, first := d.Arrive(p)
	if again, second := d.Arrive(p); !first || second || again != v || !d.Stranger(p, v) {
		t.Error("a second connection is another visit")
	}
	d.Leave(p, gone)
	if d.Stranger(p, v) {
		t.Error("a visitor that left is still there")
	}
	next, first := d.Arrive(p)
	if !first || d.Stranger(p, v) || !d.Stranger(p, next) {
		t.Error("the next visit is taken for the last")
	}
	d.Refuse(p, ErrWrongRun)
	if !d.Stranger(p, next) {
		t.Error("a refused visitor is no stranger")
	}
	if _, _, err := d.Admit(p, Capability{}, Instance{}); err != nil || d.Stranger(p, next) {
		t.Errorf("an admitted visitor is a stranger: %v", err)
	}
}

func TestPeersRefusal(t *testing.T) {
	p := testIdentity(t).ID()
	ctx := testContext(t)
	d := NewPeers()
	d.Arrive(p)
	d.Refuse(p, ErrWrongRun)
	if err := d.Wait(ctx, p); !errors.Is(err, ErrWrongRun) {
		t.Errorf("refused: %v", err)
	}
	changed := d.Changed()
	if first, _, err := d.Admit(p, Capability{}, Instance{1}); err != nil || !first {
		t.Errorf("second greeting after a refusal: %v", err)
	}
	<-changed
	if _, replaced, _ := d.Admit(p, Capability{}, Instance{1}); replaced {
		t.Error("same instance taken for another")
	}
	if _, replaced, _ := d.Admit(p, Capability{}, Instance{2}); !replaced {
		t.Error("another instance not noticed")
	}
	d.Block(p, ErrBlocked)
	if err := d.Wait(ctx, p); d.Member(p) || !errors.Is(err, ErrBlocked) {
		t.Errorf("blocked: %v", err)
	}
	if _, _, err := d.Admit(p, Capability{}, Instance{}); !errors.Is(err, ErrBlocked) {
		t.Errorf("admitted though blocked: %v", err)
	}
	if _, _, err := d.Admit(testIdentity(t).ID(), Capability{}, Instance{}); !errors.Is(err, ErrNotMember) {
		t.Errorf("admitted though not connected: %v", err)
	}
}
