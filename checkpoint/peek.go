package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pnode/planner/plan"
)

// Glance holds what a look at the folder of a store shows.
type Glance struct {
	// InUse: a process has the store open.
	InUse bool
	// PID is the process that has it open; 0: not known.
	PID int
	// Newest is the step of its newest checkpoint, whole or not; 0 is none.
	Newest plan.Step
}

// Peek looks at the folder of a store without opening it, and changes nothing. What it cannot read is not there for it.
func Peek(dir string) Glance {
	var g Glance
	if f, err := os.Open(filepath.Join(dir, lockFile)); err == nil {
		if g.InUse = errors.Is(tryShare(f), ErrLocked); g.InUse {
			g.PID = owner(f)
		}
		_ = f.Close() // nothing was written
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "manifests"))
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "step-")
		if step, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			g.Newest = max(g.Newest, plan.Step(step))
		}
	}
	return g
}
