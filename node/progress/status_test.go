package progress

import (
	"testing"
	"time"

	"pnode/node/api"
)

// TestWhoIsSilentIsShownSinceWhen in its state, with how long ago it was heard beside it: also a member that was not heard since this node
// began.
func TestWhoIsSilentIsShownSinceWhen(t *testing.T) {
	since := time.Date(2026, 7, 1, 14, 3, 10, 0, time.Local)
	now := since.Add(time.Minute + 15*time.Second)
	for name, c := range map[string]struct {
		member api.Member
		want   string
	}{
		"silent":                {api.Member{State: api.MemberSilent, LastSeenS: 75, SilentSince: since}, "silent since 14:03:10  1 min 15 s ago"},
		"silent since long":     {api.Member{State: api.MemberSilent, LastSeenS: 2*86400 + 75, SilentSince: since.AddDate(0, 0, -2)}, "silent since Jun 29 14:03  2 days ago"},
		"not heard since then":  {api.Member{State: api.MemberSilent, SilentSince: since}, "silent since 14:03:10  never"},
		"heard":                 {api.Member{State: "active", LastSeenS: 2}, "active  2 s ago"},
		"it is this node":       {api.Member{State: "active", Self: true}, "active  -"},
		"it has left":           {api.Member{State: "gone", LastSeenS: 75}, "gone  1 min 15 s ago"},
		"it has just come":      {api.Member{State: "joining"}, "joining  never"},
		"of a moment, and ends": {api.Member{State: "draining", LastSeenS: 0.25}, "draining  0 s ago"},
	} {
		if got := memberState(c.member, now) + "  " + lastSeen(c.member); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
