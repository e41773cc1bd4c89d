package ledger

import (
	"strings"
	"testing"
)

// TestAReportReads: one step is a step, and a run that no ledger names has no empty name.
func TestAReportReads(t *testing.T) {
	for want, r := range map[string]Report{
		"a run that no ledger names: 0 steps committed, from the ledgers of 1 node\n  /x has no ledger": {Nodes: []NodeReport{{Dir: "/x"}}},
		"run r: 1 step committed, from the ledgers of 0 nodes\n  generation 1: step 1 by a\n":           {Run: "r", Steps: 1, Generations: []GenerationReport{{Generation: 1, First: 1, Last: 1, Nodes: []string{"a"}}}},
		"computed twice: 1 step redone, 2 replayed\n  step 7 of generation 2: lost\n":                   {Redone: []Redone{{First: 7, Last: 7, Generation: 2, Why: "lost"}}, Replayed: 2},
		"computed twice: 3 steps redone, 0 replayed\n  steps 7 to 9 of generation 2: lost\n":            {Redone: []Redone{{First: 7, Last: 9, Generation: 2, Why: "lost"}}},
		"discarded: step 4 of b in generation 3, which":                                                 {Discarded: []Discarded{{First: 4, Last: 4, Node: "b", Generation: 3}}},
	} {
		var b strings.Builder
		if err := r.Print(&b); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
}
