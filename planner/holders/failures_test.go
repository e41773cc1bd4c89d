package holders

import (
	"slices"
	"testing"

	"pnode/planner/plan"
)

func TestFailures(t *testing.T) {
	all := Failures(nil).With(Failure{"a", "b", 7}).With(Failure{"a", "c", 9}).With(Failure{"b", "c", 9})
	for name, c := range map[string]struct {
		left Failures
		of   []plan.PeerID
	}{
		"all":                          {all, []plan.PeerID{"b", "c"}},
		"when the first still counts":  {all.At(failureMillis + 6), []plan.PeerID{"b", "c"}},
		"when it does not":             {all.At(failureMillis + 7), []plan.PeerID{"c"}},
		"when none does":               {all.At(failureMillis + 9), nil},
		"a holder is started again":    {all.Restarted("c"), []plan.PeerID{"b", "c"}},
		"who computes the stage is":    {all.Restarted("a"), nil},
		"who has no part in any is":    {all.Restarted("d"), []plan.PeerID{"b", "c"}},
		"another pair is said to fail": {all.With(Failure{"a", "d", 9}), []plan.PeerID{"b", "c", "d"}},
	} {
		if got := c.left.Of("a"); !slices.Equal(got, c.of) {
			t.Errorf("%s: %v, want %v", name, got, c.of)
		}
	}
	if !all.Between("a", "b") || all.Between("b", "a") || len(all) != 3 {
		t.Errorf("%v", all)
	}
	if none := all.At(failureMillis + 9); none != nil {
		t.Errorf("%v, want none, as it is encoded", none)
	}
}
