package recompute

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pnode/pipeline/gather/seals"
	"pnode/planner/plan"
)

var (
	errOver  = errors.New("recompute: the log has no more outer steps of the plan")
	errWrong = errors.New("recompute: inner steps come to what no honest replica sends, and it counted in the run")
)

// script holds what the log says of the rounds of a plan.
type script struct {
	made   []plan.Merged
	wanted map[plan.Step]bool
	whole  map[plan.Step]chan struct{} // by the step that an outer step leads to: closed once all that count have each other's messages
	mu     sync.Mutex                  // guards the rest
	have   map[plan.Step]map[plan.Replica]bool
	differ func(string)
	wrong  chan struct{} // closed once a message is lacking: nobody can go on
	once   sync.Once     // closes wrong
}

func newScript(made []plan.Merged, wanted map[plan.Step]bool, differ func(string)) *script {
	s := &script{made: made, wanted: wanted, whole: map[plan.Step]chan struct{}{}, have: map[plan.Step]map[plan.Replica]bool{}, differ: differ, wrong: make(chan struct{})}
	for _, m := range made {
		s.whole[m.To], s.have[m.To] = make(chan struct{}), map[plan.Replica]bool{}
	}
	return s
}

// view is the script as the workers of one replica see it. It implements gather.Rounds.
type view struct {
	*script
	replica plan.Replica
	place   sync.Mutex // guards at
	at      plan.Step  // the newest inner step
}

// step takes in an inner step, or an outer one.
func (v *view) step(at plan.Step) {
	v.place.Lock()
	defer v.place.Unlock()
	v.at = at
}

// round returns the outer step that ends the round of a step.
func (s *script) round(at plan.Step) (m plan.Merged, ok bool) {
	for _, m := range s.made {
		if m.From < at && at <= m.To {
			return m, true
		}
	}
	return plan.Merged{}, false
}

// Closed reports whether the replica's part of the round ends with its next inner step.
func (v *view) Closed() bool {
	v.place.Lock()
	defer v.place.Unlock()
	m, ok := v.round(v.at + 1)
	return !ok || v.at+1 >= m.From+m.Parts[v.replica].Steps
}

// Found says that replicas could not have sent each other what they compute here. The others would wait for it in vain.
func (v *view) Found(from plan.Step, f plan.Fault) {
	v.once.Do(func() { close(v.wrong) })
	v.differ(fmt.Sprintf("the round after step %d has what no honest replica sends: %v", from, &f))
}

// Have compares what came of the replicas that count with what came in the run.
func (v *view) Have(g plan.Gathered, _ []seals.Exhibit) {
	m, ok := v.round(g.From + 1)
	if !ok {
		return
	}
	lacks := false
	for _, r := range m.Counted() {
		part := g.Parts[r]
		lacks = lacks || part.Steps == 0
		if part.Steps > 0 && part != m.Parts[r] {
			v.differ(fmt.Sprintf("replica %d had other messages for the outer step of step %d in generation %d than its inner steps give", r, m.To, m.Generation))
		}
	}
	if lacks {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	have := v.have[m.To]
	if have[v.replica] {
		return
	}
	if have[v.replica] = true; len(have) == len(m.Counted()) {
		close(v.whole[m.To])
	}
}

// Merged waits until all that count have each other's messages.
func (v *view) Merged(ctx context.Context, from plan.Step) (plan.Merged, error) {
	m, ok := v.round(from + 1)
	if !ok {
		return plan.Merged{}, errOver
	}
	m.Save = m.Last || v.wanted[m.To]
	select {
	case <-v.whole[m.To]:
		return m, nil
	case <-v.wrong:
		return plan.Merged{}, errWrong
	case <-ctx.Done():
		return plan.Merged{}, ctx.Err()
	}
}
