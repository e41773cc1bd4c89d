package trace

import (
	"fmt"
	"regexp"
	"time"

	"pnode/planner/plan"
)

// TimedCopy is a message on its way between a device and the host, concurrently with a worker's program,
// in nanoseconds since 1970.
type TimedCopy struct {
	// Name says which way, which message and for which stage; Row follows from the stage.
	Name        string
	Generation  plan.Generation
	Step        plan.Step
	Worker, Row int
	Start, End  int64
}

// copyCategory marks copies among actions.
const copyCategory = "copy"

// copyName matches what a copy may be called.
var copyName = regexp.MustCompile(`^[a-z0-9, ]{1,100}$`)

// Rows of a worker after its program's: reductions and copies of each stage that it holds.
const (
	reductionsRow = 1
	copiesRow     = 1_000_000
	maxRow        = 2 * copiesRow
)

func rowOf(base int, r plan.Replica, s plan.Stage) int { return base + int(s) + 1000*int(r) }

// AddCopy writes a copy to or from a stage, as Add does.
func (r *Recorder) AddCopy(c TimedCopy, at plan.StageID, begin, end time.Time) {
	if r.wants(c.Step) {
		c.Name, c.Row = fmt.Sprintf("%s, replica %d, stage %d", c.Name, at.Replica, at.Stage), rowOf(copiesRow, at.Replica, at.Stage)
		c.Start, c.End = r.nanos(begin, end)
		r.putCopy(c)
	}
}

func (r *Recorder) putCopy(c TimedCopy) {
	r.write(Span{
		Name: c.Name, Category: copyCategory, Start: c.Start, End: c.End,
		Worker: c.Worker, Row: c.Row, Generation: c.Generation, Step: c.Step,
	})
}
