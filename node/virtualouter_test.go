package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// outerSteps returns what a node that has ended told of each outer step.
func (r *localRun) outerSteps(m *member) (told []string) {
	for e := range m.process.node.Load().monitor.Events(r.ctx) {
		if e.Kind != api.KindOuter {
			continue
		}
		text := fmt.Sprintf("%d to %d", e.Outer.From, e.Outer.To)
		if e.Outer.Drift == nil || *e.Outer.Drift <= 0 || e.Outer.BytesPerToken <= 0 || e.Outer.SentBytes <= 0 || e.Outer.WaitedShare <= 0 {
			r.Errorf("%s: %s: %+v", m.name(), e.Message, *e.Outer)
		} else {
			text += fmt.Sprintf(", drift %v, %v bytes a token", *e.Outer.Drift, e.Outer.BytesPerToken)
		}
		for _, p := range e.Outer.Replicas {
			if p.Steps == 0 {
				text += fmt.Sprintf(", without %d: %s", p.Replica, p.Why)
			}
		}
		told = append(told, text)
	}
	return told
}

// TestOuterStepsAreTold: each node tells each outer step once, with the same figures, and the loss of a replica with the one that was made without it. The
// status says how far each replica has come.
func TestOuterStepsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLocalRun(t, 3, func(s *fleetSize) { s.Steps = 12 })
		r.until("status of the second round", time.Hour, func() bool {
			s := r.members[0].node().monitor.Status()
			made := func(r api.ReplicaStatus) bool {
				return r.Made > 0 && r.Of == 4 && r.TokensPerS > 0 && r.Loss > 0 && r.State == api.ReplicaComputes
			}
			return s.Round != nil && s.Round.From == 4 && len(s.Replicas) == 3 && !slices.ContainsFunc(s.Replicas, func(r api.ReplicaStatus) bool { return !made(r) }) &&
				s.Outer != nil && s.Outer.To == 4 && s.Outer.Quiet()
		})
		r.members[2].kill(r.members[:2]...)
		r.ends()
		first, second := r.outerSteps(r.members[0]), r.outerSteps(r.members[1])
		if !slices.Equal(first, second) {
			t.Errorf("one tells\n%s\nanother\n%s", strings.Join(first, "\n"), strings.Join(second, "\n"))
		}
		var at plan.Step
		without := 0
		for _, text := range first {
			var from, to plan.Step
			if _, err := fmt.Sscanf(text, "%d to %d", &from, &to); err != nil || from != at {
				t.Errorf("%s follows step %d: %v", text, at, err)
			}
			if strings.Contains(text, "without") {
				without++
			}
			at = to
		}
		if at != plan.Step(r.size.Steps) || without != 1 {
			t.Errorf("%d were made without somebody:\n%s", without, strings.Join(first, "\n"))
		}
		t.Log(strings.Join(first, "\n"))
	})
}
