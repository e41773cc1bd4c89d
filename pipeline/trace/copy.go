package trace

import (
	"fmt"
	"regexp"
	"time"

	"pnode/planner/plan"
)

// Copy is a message on its way between a device and the host, concurrently with a worker's program.
type Copy struct {
	// What names the way and the message: `upload activation`.
	What       string
	Generation plan.Generation
	Step       plan.Step
	Worker     int
	// Replica and Stage hold the tensor on the device; Index is that of the message.
	Replica    plan.Replica
	Stage      plan.Stage
	Index      int32
	Start, End time.Time
}

// TimedCopy is a copy in nanoseconds since 1970.
type TimedCopy struct {
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

// AddCopy writes a copy.
func (r *Recorder) AddCopy(c Copy) {
	if r == nil {
		return
	}
	start := r.nanos(c.Start)
	r.putCopy(TimedCopy{
		Name:       fmt.Sprintf("%s %d, replica %d, stage %d", c.What, c.Index, c.Replica, c.Stage),
		Generation: c.Generation, Step: c.Step, Worker: c.Worker, Row: rowOf(copiesRow, c.Replica, c.Stage),
		Start: start, End: start + max(0, c.End.Sub(c.Start).Nanoseconds()),
	})
}

func (r *Recorder) putCopy(c TimedCopy) {
	r.write(line{
		name: c.Name, category: copyCategory, start: c.Start, end: c.End,
		worker: c.Worker, row: c.Row, generation: c.Generation, step: c.Step,
	})
}
