package config

import (
	"strings"
	"testing"
	"time"
)

func TestLostMajority(t *testing.T) {
	for text, want := range map[string]time.Duration{"wait": 0, "recover-after=10m": 10 * time.Minute, "recover-after=90m": 90 * time.Minute, "recover-after=2h": 2 * time.Hour, "recover-after=10m5s": 605 * time.Second} {
		var m, again LostMajority
		if err := m.Set(text); err != nil || time.Duration(m) != want {
			t.Errorf("%q: %v, %v", text, time.Duration(m), err)
		}
		if err := again.Set(m.String()); err != nil || again != m {
			t.Errorf("%q is written %q: %v", text, m, err)
		}
	}
	for _, text := range []string{"recover", "recover-after", "recover-after=", "recover-after=9m", "recover-after=-10m", "recover-after=721h", "10m", "never"} {
		if err := new(LostMajority).Set(text); err == nil || !strings.Contains(err.Error(), "want wait, or recover-after=10m") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := LostMajority(10 * time.Minute).String(); got != "recover-after=10m" {
		t.Errorf("ten minutes are %q", got)
	}
}
