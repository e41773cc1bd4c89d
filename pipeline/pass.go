package pipeline

import (
	"context"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// pass is what a worker computes at a time: what its queue has between two events. The program
// goes on when it has enqueued one; watch follows what the device does.
type pass struct {
	action schedule.Action
	sum    *time.Duration // of a stage's times, to which the pass is added
	// awaited are the actions that the pass had to wait for.
	awaited    []await
	begin, end kernels.Event // nil for an action without a pass
}

// await is an action that waits for others, with the stage that it is for.
type await struct {
	h      *holding
	action schedule.Action
}

// maxPasses bounds how many passes the program is ahead of what has been waited for: enough for a
// device not to stand still, few enough for the end of a generation not to wait for long.
const maxPasses = 4

// compute has f enqueue a pass. Its errors come from watch.
func (w *Worker) compute(step plan.Step, a schedule.Action, sum *time.Duration, f func()) error {
	p := pass{action: a, sum: sum, awaited: w.awaited, begin: w.queue.Record()}
	w.awaited = nil
	f()
	p.end = w.queue.Record()
	return w.deliver(step, p)
}

// deliver tells of a pass, or of an action that has none: outside of a program it is waited for.
func (w *Worker) deliver(step plan.Step, p pass) error {
	if w.passes == nil {
		return w.passed(step, p)
	}
	w.passes <- p // watch takes all
	return nil
}

// watch waits for passes in the order of the program. The first error, which names its pass, is
// told to fail at once; then, and when ctx is done, no more are waited for.
func (w *Worker) watch(ctx context.Context, step plan.Step, passes <-chan pass, fail func(error)) (err error) {
	for p := range passes {
		if err != nil || ctx.Err() != nil {
			continue
		}
		if err = w.passed(step, p); err != nil {
			fail(err)
		}
	}
	return err
}

// passed waits for a pass, and adds up and writes down where the time went: the device was idle
// from the end of the pass before, and what the pass had to wait for made it so.
func (w *Worker) passed(step plan.Step, p pass) error {
	if p.end == nil {
		w.span(step, p.action, w.free, w.free)
		return nil
	}
	if err := p.begin.Sync(); err != nil {
		return fmt.Errorf("%v: %w", p.action, err)
	}
	begin := later(w.free, p.begin.Time())
	for _, a := range p.awaited {
		a.h.times.Wait += begin.Sub(w.free)
		w.span(step, a.action, w.free, begin)
		w.free = begin
	}
	if err := p.end.Sync(); err != nil {
		return fmt.Errorf("%v: %w", p.action, err)
	}
	w.free = later(begin, p.end.Time())
	*p.sum += w.free.Sub(begin)
	w.span(step, p.action, begin, w.free)
	return nil
}

// later is the second time but not before the first.
func later(first, second time.Time) time.Time {
	if second.Before(first) {
		return first
	}
	return second
}
