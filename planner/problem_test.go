package planner

import (
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// TestStateThatMovesTakesTime: one node's state goes to two others over lines of different rates, one after the other where
// it is the source of both.
func TestStateThatMovesTakesTime(t *testing.T) {
	in, p := fourNodes(t)
	in.Previous = &p
	s, err := searchFor(in, p)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.adopt(p)
	if err == nil {
		err = s.timed(k)
	}
	if err != nil {
		t.Fatal(err)
	}
	if bytes, took := s.moved(k.layout.Rows); bytes != 0 || took != 0 {
		t.Errorf("the plan in force moves %d bytes in %d ns", bytes, took)
	}
	first, last := k.layout.Rows[0][0], k.layout.Rows[0][len(k.layout.Rows[0])-1]
	rows := k.layout.Rows[:1:1]
	rows[0] = append(rows[0][:0:0], rows[0]...)
	rows[0][0].Device, rows[0][len(rows[0])-1].Device = last.Device, first.Device // they change places
	want := s.stateBytes(plan.LayerRange{First: first.First, End: first.End}) + s.stateBytes(plan.LayerRange{First: last.First, End: last.End})
	bytes, took := s.moved(rows)
	if bytes != want || took <= 0 {
		t.Fatalf("%d bytes in %d ns, want %d", bytes, took, want)
	}
	link, _ := s.links.Between(s.devices[first.Device].peer, s.devices[last.Device].peer)
	if least := schedule.Nanos(want / 2 * 1e9 / link.BytesPerS / 4); took < least {
		t.Errorf("%d bytes over a line of %d bytes/s take %d ns only", want, link.BytesPerS, took)
	}
}
