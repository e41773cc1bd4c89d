package pipeline

import (
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
)

// maxLaunches bounds how many launches are enqueued that have not been waited for: enough for a
// device not to stand still, few enough for the end of a generation not to wait for long.
const maxLaunches = 4

// launch is the kernels that one action enqueues between two events. The program goes on when it has
// enqueued them; watch follows what the device does.
type launch struct {
	action     schedule.Action
	sum        *time.Duration // of a stage's times, to which the launch is added
	awaited    []await        // what the launch had to wait for
	begin, end kernels.Event  // nil for an action without kernels
}

// await is an action that waits for others, with the times of its stage.
type await struct {
	times  *StageTimes
	action schedule.Action
}

// launch has f enqueue the kernels of an action. Their errors come from watch.
func (s *stepRun) launch(a schedule.Action, sum *time.Duration, f func()) error {
	l := launch{action: a, sum: sum, awaited: s.awaited, begin: s.queue.Record()}
	s.awaited = nil
	f()
	l.end = s.queue.Record()
	return s.follow(l)
}

// follow hands a launch to watch, which takes all; outside of a program it waits for it.
func (s *stepRun) follow(l launch) error {
	if s.launches == nil {
		return s.time.observe(l)
	}
	s.launches <- l
	return nil
}

// watch waits for launches in the order of the program. The first error, which names its action,
// ends the program at once; then, and when the step has failed, no more are waited for.
func (s *stepRun) watch(launches <-chan launch) (err error) {
	for l := range launches {
		if err != nil || s.ctx.Err() != nil {
			continue
		}
		if err = s.time.observe(l); err != nil {
			s.cancel(err)
		}
	}
	return err
}

// timeline follows where the time of one worker's step goes, and records it in the trace. Within a
// program it belongs to watch; span and copied may be called concurrently.
type timeline struct {
	*program
	step  plan.Step
	trace *trace.Recorder // may be nil
	moves *progress       // hears of each launch
	idle  time.Time       // when the device was done with the last launch
}

// observe waits for a launch, adds up where the time went and records it in the trace. The device was
// idle from the end of the launch before, because of what this one had to wait for.
func (t *timeline) observe(l launch) error {
	if l.end == nil {
		t.span(l.action, t.idle, t.idle)
		return nil
	}
	if err := l.begin.Sync(); err != nil {
		return fmt.Errorf("%v: %w", l.action, err)
	}
	begin := later(t.idle, l.begin.Time())
	for _, a := range l.awaited {
		a.times.Wait += begin.Sub(t.idle)
		t.span(a.action, t.idle, begin)
		t.idle = begin
	}
	if err := l.end.Sync(); err != nil {
		return fmt.Errorf("%v: %w", l.action, err)
	}
	t.idle = later(begin, l.end.Time())
	t.moves.move()
	*l.sum += t.idle.Sub(begin)
	t.span(l.action, begin, t.idle)
	return nil
}

// span records in the trace when an action of the program began and ended. Evaluations are no part
// of the program.
func (t *timeline) span(a schedule.Action, begin, end time.Time) {
	if t.trace == nil || t.evaluates(t.part(a.Micro).micro) {
		return
	}
	t.trace.Add(trace.Timed{
		Generation: t.plan.Generation, Step: t.step, Worker: t.number, Action: a, Segments: t.list.Segments,
	}, begin, end)
}

// copied records in the trace when a message was copied between the device and the host.
func (t *timeline) copied(what string, x *transfer) {
	if t.trace == nil || t.evaluates(t.part(t.numbered(x.tag)).micro) {
		return
	}
	t.trace.AddCopy(trace.TimedCopy{
		Name: fmt.Sprintf("%s %v %d", what, x.tag.Kind, t.numbered(x.tag)), Generation: x.tag.Generation, Step: x.tag.Step, Worker: t.number,
	}, x.stage.StageID, x.begin, x.end)
}

// later returns the second time, but not one before the first.
func later(first, second time.Time) time.Time {
	if second.Before(first) {
		return first
	}
	return second
}
