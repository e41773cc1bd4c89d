package recompute

import (
	"errors"
	"testing"

	"pnode/planner/plan"
)

// TestNobodyWaitsForWhatIsWrong: where a replica's inner steps come to what no other one takes, there is no outer step to wait for.
func TestNobodyWaitsForWhatIsWrong(t *testing.T) {
	var differs []string
	made := plan.Merged{Generation: 1, To: 4, Parts: []plan.Part{{Steps: 4}, {Steps: 4}}}
	s := newScript([]plan.Merged{made}, nil, func(text string) { differs = append(differs, text) })
	v := &view{script: s}
	v.Found(0, plan.Fault{Kind: plan.BadReport, Step: 4, Detail: "a loss is NaN"})
	v.Found(0, plan.Fault{Kind: plan.BadReport, Step: 4, Detail: "a loss is NaN"})
	if _, err := v.Merged(t.Context(), 0); !errors.Is(err, errWrong) || len(differs) == 0 {
		t.Errorf("%v, %q", err, differs)
	}
}
