package generation

import (
	"testing"

	"pnode/planner/plan"
)

func TestOldestStateInMemory(t *testing.T) {
	for name, c := range map[string]struct{ start, made, first, checkpoint, want plan.Step }{
		"before the run's first commit":    {0, 0, 1, 0, 0},
		"the first step is made":           {0, 1, 1, 0, 0},
		"a plan has begun":                 {30, 30, 31, 30, 30},
		"somebody may lack a commit":       {30, 37, 31, 30, 36},
		"a checkpoint was forgotten up to": {30, 37, 38, 37, 37},
		"and one that is not yet":          {30, 37, 31, 37, 36},
	} {
		if got := oldestInMemory(c.start, c.made, c.first, c.checkpoint); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
