package consensus

import (
	"strings"
	"testing"
	"time"
)

// An owner makes invites without end, to fill the list: it has so many open ones, for so long, and those that ended make
// room once nobody of theirs is in the run.
func TestOneOwnerFillsTheInvites(t *testing.T) {
	s := State{Owners: peersOf("a,b")}
	refused := func(e Entry, text string) {
		t.Helper()
		if _, err := e.apply(s); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	take := func(e Entry) {
		t.Helper()
		next, err := e.apply(s)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	long := testInvite(1, "a", 1, false)
	long.RedeemBefore = long.Made + int64(MaxInviteTime/time.Second) + 1
	refused(long, "seconds between")
	overflow := testInvite(1, "a", 1, false)
	overflow.Made, overflow.RedeemBefore = -1<<62, 1<<62
	refused(overflow, "seconds between")
	for i := range MaxOpenGrants {
		take(testInvite(uint64(i+1), "a", 1, false))
	}
	refused(testInvite(5000, "a", 1, false), "open invites")
	take(testInvite(5000, "b", 1, false))

	// A list that is full of invites which its maker has used for keys of its own.
	s = State{Owners: peersOf("a,b")}
	for i := range MaxGrants {
		g := Grant{Serial: uint64(i + 1), Issuer: "a", Uses: 1, RedeemBefore: 1 << 40, Peers: peersOf("ghost")}
		s.Grants = append(s.Grants, g)
	}
	refused(testInvite(5000, "b", 1, false), "cannot remember more")
	take(Revoke{By: "b", Peer: "ghost"})
	take(testInvite(5000, "b", 1, false))
	if len(s.Grants) != 1 || s.Admitted("ghost") {
		t.Errorf("%d invites are remembered, the ghost is in: %v", len(s.Grants), s.Admitted("ghost"))
	}
}
