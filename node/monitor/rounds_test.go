package monitor

import (
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
)

// apart has what a node shows of a run whose replicas make local steps.
type apart struct {
	steps
	shown []api.Event
}

func newApart(p plan.Plan, end plan.Step) *apart {
	a := &apart{}
	a.log.publish = func(e api.Event) { a.shown = append(a.shown, e) }
	a.begin(p, nil, end)
	return a
}

// inner reports inner steps of a replica, each of a second.
func (a *apart) inner(r plan.Replica, first, last plan.Step) {
	for s := first; s <= last; s++ {
		a.report(pipeline.StepResult{Step: s, Replica: &r, Loss: 100 + float64(s), Total: time.Duration(s) * 1e8}, 8, time.Unix(int64(s), 0))
	}
}

// counts are the steps of a round, the first one evaluated.
func counts(first, last plan.Step, heldOut float64) (all []pipeline.StepResult) {
	for s := first; s <= last; s++ {
		all = append(all, pipeline.StepResult{Step: s, Loss: float64(s)})
	}
	all[0].HeldOut = &heldOut
	return all
}

// TestStepsCountInRounds: the run's steps are shown once an outer step counts them, each once and in order, by all nodes: those that coordinate two replicas
// or one, and the one that reads others' logs. What did not count is in no curve.
func TestStepsCountInRounds(t *testing.T) {
	p := plan.Plan{Generation: 1, Local: &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1}}, Replicas: make([]plan.Pipeline, 3)}
	first, both, reads := newApart(p, 12), newApart(p, 12), newApart(p, 12)
	first.inner(0, 1, 4)
	both.inner(1, 1, 4)
	both.inner(2, 1, 3)
	reads.inner(0, 1, 4)
	for _, a := range []*apart{first, both, reads} {
		if e := a.current(); len(a.shown) != 0 || e.Step != 0 || e.Loss != 0 {
			t.Errorf("before the outer step %s is shown, the newest %+v", spell(a.shown), e)
		}
	}
	var b gossip.Heartbeat
	if both.fillHeartbeat(&b); b.Step != 0 || len(b.Inner) != 2 || b.Inner[0] != (gossip.InnerStep{Replica: 1, Step: 4, Loss: 104, Nanos: 25e7}) || b.Inner[1].Step != 3 {
		t.Errorf("a heartbeat says %+v", b)
	}
	everywhere := func(from, last plan.Step, at int64) {
		first.count(counts(from, last, 9), 8, time.Unix(at, 0))
		for range 2 { // of both replicas
			both.count(counts(from, last, 9), 8, time.Unix(at, 0))
		}
		reads.merge(first.log.since(reads.logged().end), nil)
		reads.merge(both.log.since(reads.logged().end), nil)
	}
	everywhere(1, 4, 7) // three steps in 6 s
	for name, a := range map[string]*apart{"one": first, "two": both, "reads": reads} {
		if e := a.current(); spell(a.shown) != "1/1 1/2 1/3 1/4" || e.Step != 4 || e.Loss != 4 || *e.HeldOut != 9 || a.shown[0].HeldOut == nil || a.shown[1].HeldOut != nil {
			t.Errorf("%s: shown %s, the newest %+v", name, spell(a.shown), e)
		}
	}
	if speed := first.current().TokensPerS; speed != 4 {
		t.Errorf("%v tokens/s, 3 steps of 8 took 6 s", speed)
	}
	// The round after step 4 never ends: its steps are made again.
	first.inner(0, 5, 8)
	p.Generation, p.Start = 2, 4
	for _, a := range []*apart{first, both, reads} {
		a.begin(p, nil, 12)
	}
	b = gossip.Heartbeat{}
	first.fillHeartbeat(&b)
	if len(b.Inner) != 0 {
		t.Errorf("a heartbeat has steps of the plan before: %+v", b)
	}
	first.inner(0, 5, 8)
	everywhere(5, 8, 20)
	everywhere(9, 12, 30)
	final := pipeline.StepResult{Step: 12, Final: true, HeldOut: new(float64)}
	*final.HeldOut = 5
	first.report(final, 8, time.Unix(31, 0))
	for _, a := range []*apart{both, reads} {
		a.merge(first.log.since(a.logged().end), nil)
	}
	for name, a := range map[string]*apart{"one": first, "two": both, "reads": reads} {
		e := a.finish()
		if got := spell(a.shown); got != "1/1 1/2 1/3 1/4 2/5 2/6 2/7 2/8 2/9 2/10 2/11 2/12" || *e.HeldOut != 5 || *a.shown[11].HeldOut != 5 {
			t.Errorf("%s: shown %s, the last %+v", name, got, e)
		}
	}
}
