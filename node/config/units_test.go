package config

import (
	"strings"
	"testing"
)

// TestTimesAreShownAsTheyAreTyped: what a flag has, and what is accepted.
func TestTimesAreShownAsTheyAreTyped(t *testing.T) {
	for given, want := range map[string]string{"40ms": "40ms", "90s": "1m30s", "600s": "10m", "24h": "24h", "61m": "1h1m", "0": "0s"} {
		var m Moment
		if err := m.Set(given); err != nil || m.String() != want {
			t.Errorf("%s is shown as %s, want %s: %v", given, m, want, err)
		}
	}
	var g Grace
	if err := g.Set("48h"); err == nil || !strings.Contains(err.Error(), "from 1s to 24h,") {
		t.Errorf("48h: %v", err)
	}
}
