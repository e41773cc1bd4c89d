package main

import (
	"strings"
	"testing"
)

// TestArms: each has its own flags and those that all have in common, and a name that a file can have.
func TestArms(t *testing.T) {
	arms, err := armsOf([]string{"--sync every-step", "--sync local:h=30,codec=int8,warmup=10%"}, []string{"--preset", "nano", "--steps", "70", "--replicas", "2"})
	if err != nil || len(arms) != 2 {
		t.Fatal(arms, err)
	}
	for i, want := range []struct{ name, sync string }{{"sync-every-step", "every-step"}, {"sync-local-h=30-codec=int8-warmup=10_", "local:h=30,codec=int8,warmup=10%"}} {
		if a := arms[i]; a.Name != want.name || a.Config.Sync != want.sync || a.Config.Steps != 70 || a.Config.Local != 1 || !strings.HasPrefix(a.Says, "--preset nano") {
			t.Errorf("%+v", a)
		}
	}
	for want, arms := range map[string][]string{
		"two arms or more":              {"--lr 1e-3"},
		"the same":                      {"--lr 1e-3", "--lr  1e-3"},
		"each run's own":                {"--lr 1e-3", "--seed 3"},
		"no flag of pnode train":        {"--lr 1e-3", "lr=2"},
		"unknown flag: --rate":          {"--lr 1e-3", "--rate 2"},
		"compared after the same steps": {"--lr 1e-3", "--steps 80"},
		"optimizer":                     {"--lr 1e-3", "--optimizer lion"},
		"want a number":                 {"--lr 1e-3", "--lr x"},
	} {
		if _, err := armsOf(arms, []string{"--steps", "70"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", arms, err, want)
		}
	}
}
