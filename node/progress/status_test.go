package progress

import (
	"testing"
	"time"

	"pnode/node/api"
)

// TestWhoIsSilentIsShownSinceWhen: also a member that was not heard since this node began.
func TestWhoIsSilentIsShownSinceWhen(t *testing.T) {
	since := time.Date(2026, 7, 1, 14, 3, 10, 0, time.Local)
	for want, m := range map[string]api.Member{
		"silent since 14:03:10": {State: "active", LastSeenS: 51, SilentSince: since},
		"2 s ago":               {State: "active", LastSeenS: 2},
		"never":                 {State: "joining"},
		"-":                     {State: "active", Self: true},
	} {
		if got := lastSeen(m); got != want {
			t.Errorf("%+v: %q, want %q", m, got, want)
		}
	}
}
