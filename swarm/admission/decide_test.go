package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pnode/swarm/version"
)

// Decide answers each way of coming in wrongly with its reason.
func TestDecide(t *testing.T) {
	now := time.Now()
	id, other, owner := testIdentity(t), testIdentity(t), testOwner(t)
	grant := func(o Owner, opt InviteOptions, at time.Time) Invite {
		v, err := o.Invite(opt, at)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	good := grant(owner, InviteOptions{Run: testRun}, now)
	elsewhere := grant(owner, InviteOptions{Run: "anotherrun"}, now)
	stranger := grant(testOwner(t), InviteOptions{Run: testRun}, now)
	ended := grant(owner, InviteOptions{Run: testRun, TTL: time.Hour, MemberTTL: 2 * time.Hour}, now.Add(-3*time.Hour))
	longer := good
	longer.Grant.Expires = longer.Grant.Expires.Add(time.Hour)
	more := good
	more.Grant.Uses = 100
	show := func(v Invite, by Invite, p Identity) []byte { return bind(v.Grant, by.key(), p.ID()).Encode() }
	newer := show(good, good, id)
	newer[0]++
	full := errors.New("the roster is full")
	for name, c := range map[string]struct {
		capability []byte
		want       error
		change     func(*Question)
	}{
		"good":              {show(good, good, id), nil, nil},
		"none":              {nil, ErrNeedsInvite, nil},
		"blocked":           {show(good, good, id), ErrBlocked, func(q *Question) { q.Blocked = ErrBlocked }},
		"wrong run":         {show(elsewhere, elsewhere, id), ErrWrongRun, nil},
		"another owner":     {show(stranger, stranger, id), ErrSignature, nil},
		"later expiry":      {show(longer, longer, id), ErrSignature, nil},
		"more uses":         {show(more, more, id), ErrSignature, nil},
		"no bearer key":     {show(good, stranger, id), ErrSignature, nil},
		"another's":         {show(good, good, other), ErrSignature, nil},
		"membership over":   {show(ended, ended, id), ErrCapabilityExpired, nil},
		"cut short":         {show(good, good, id)[:100], ErrMalformed, nil},
		"followed by bytes": {append(show(good, good, id), 0), ErrMalformed, nil},
		"newer version":     {newer, version.Err, nil},
		"refused by a rule": {show(good, good, id), full, func(q *Question) { q.Admit = func(Capability) error { return full } }},
	} {
		q := Question{
			Run: Run{testRun, owner.PublicKey()}, Peer: id.ID(), Capability: c.capability, Now: now,
			Admit: func(Capability) error { return nil },
		}
		if c.change != nil {
			c.change(&q)
		}
		got, err := Decide(q)
		if !errors.Is(err, c.want) || err == nil && got.Peer != id.Peer() {
			t.Errorf("%s: %v, %v; want %v", name, got.Peer, err, c.want)
		}
	}
}

// A greeting of another version is refused with what each end speaks and which needs another release.
func TestVersionOfAGreeting(t *testing.T) {
	b := Hello{}.Append(nil)
	for v, want := range map[byte]string{
		helloVersion + 1: "version 3, its reader knows version 2: fetch the writer's release of pnode for the reader",
		helloVersion - 1: "version 1, its reader knows version 2: fetch the reader's release of pnode for the writer",
	} {
		b[0] = v
		_, err := DecodeHello(b)
		if !errors.Is(err, version.Err) || !IsRefusal(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("version %d: %v, want %q", v, err, want)
		}
		if told := Refusal(err); !strings.Contains(refusalFrom(told.Code, told.Detail).Error(), want) || len(told.Detail) > maxDetailBytes {
			t.Errorf("version %d: the other end is told %+v", v, told)
		}
	}
}
