package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

func TestRounds(t *testing.T) {
	for _, tt := range []struct {
		rounds Rounds
		want   string // leaves/merged after step 1, 2, ...
	}{
		{Rounds{Every: 1, Fragments: 1}, "0/0 0/0 0/0"},
		{Rounds{Every: 3, Fragments: 1, Delay: 2}, "0/- -/- -/0 0/- -/- -/0"},
		{Rounds{Every: 6, Fragments: 3}, "-/- 0/0 -/- 1/1 -/- 2/2 -/- 0/0"},
		{Rounds{Every: 6, Fragments: 3, Delay: 1}, "0/- -/0 1/- -/1 2/- -/2 0/- -/0"},
	} {
		if err := tt.rounds.Validate(); err != nil {
			t.Fatal(err)
		}
		name := func(fragment int) string { return strings.ReplaceAll(strconv.Itoa(fragment), "-1", "-") }
		var got []string
		for step := range strings.Fields(tt.want) {
			leaves, merged := tt.rounds.After(Step(step) + 1)
			got = append(got, fmt.Sprintf("%s/%s", name(leaves), name(merged)))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: %v, want %s", tt.rounds, got, tt.want)
		}
	}
	for _, r := range []Rounds{{}, {Every: 6}, {Every: 6, Fragments: 4}, {Every: 6, Fragments: 7}, {Every: 6, Fragments: 2, Delay: 3}, {Every: 2 << 20, Fragments: 1}} {
		if err := r.Validate(); !errors.Is(err, ErrBadPlan) {
			t.Errorf("%+v is taken: %v", r, err)
		}
	}
	if r := (Rounds{Every: 6, Fragments: 3}); r.Fragment(0) != 0 || r.Fragment(2) != 2 || r.Fragment(7) != 1 {
		t.Error("layers do not take turns")
	}
}
