package planner

import (
	"math"
	integer "math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// outlook returns one of a run without departures, and without an earlier change.
func outlook(left plan.Step) Outlook { return Outlook{Left: left, Lasts: math.MaxInt64} }

// anyNanos returns a time of any magnitude.
func anyNanos(r *rand.Rand) schedule.Nanos { return schedule.Nanos(r.Uint64() >> (1 + r.IntN(63))) }

// TestAChangePays exactly where it gains more than it takes, whatever the numbers, and never less where a step gains
// more, more steps are left, or the stop is shorter.
func TestAChangePays(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 7))
	paid := 0
	for range 20_000 {
		c := Change{Now: anyNanos(r), Then: anyNanos(r), Move: anyNanos(r), Bytes: 1}
		o := Outlook{Left: plan.Step(r.Uint64() >> r.IntN(64)), Lasts: anyNanos(r), Stop: anyNanos(r)}
		if r.IntN(4) == 0 {
			o.Stop = 0
		}
		c.Now = min(c.Now, math.MaxInt64-shortStop)
		pays, why := c.pays(o)
		steps := new(integer.Int).SetUint64(uint64(o.Left))
		if lasts := new(integer.Int).Div(integer.NewInt(int64(o.Lasts)), integer.NewInt(max(int64(c.Then), 1))); lasts.Cmp(steps) < 0 {
			steps = lasts
		}
		stop := int64(o.Stop)
		if stop == 0 {
			stop = int64(shortStop + c.Now)
		}
		gain := steps.Mul(steps, integer.NewInt(max(0, int64(c.Now-c.Then))))
		if want := gain.Cmp(integer.NewInt(max(stop, int64(c.Move)))) > 0; pays != want {
			t.Fatalf("%+v, %+v: %t, want %t: %s", c, o, pays, want, why)
		}
		if !pays {
			continue
		}
		paid++
		faster, later, moved := c, o, c
		faster.Then -= schedule.Nanos(r.Int64N(int64(c.Then) + 1))
		later.Left += plan.Step(r.Uint64N(math.MaxUint64 - uint64(o.Left) + 1))
		later.Lasts += schedule.Nanos(r.Int64N(math.MaxInt64 - int64(o.Lasts) + 1))
		moved.Move = schedule.Nanos(r.Int64N(int64(c.Move) + 1))
		for what, again := range map[string]bool{"a shorter step": first(faster.pays(o)), "more time": first(c.pays(later)), "less to move": first(moved.pays(o))} {
			if !again {
				t.Fatalf("%+v, %+v pays, but not with %s", c, o, what)
			}
		}
	}
	if paid < 1000 {
		t.Errorf("only %d of the changes pay: the test shows little", paid)
	}
}

func first(pays bool, _ string) bool { return pays }

// TestWhatCannotGoOnNeedNotPay: only a change that was compared is weighed.
func TestWhatCannotGoOnNeedNotPay(t *testing.T) {
	gone := Decision{Replan: true, Reason: "b is gone"}
	if got := gone.Pays(Outlook{}); got != gone {
		t.Errorf("%+v", got)
	}
	// 83 ms of 483 ms, and a stop of 9.5 s.
	better := Decision{true, "better", Change{Now: 483e6, Then: 400e6}}
	for left, want := range map[plan.Step]bool{114: false, 115: true} {
		if got := better.Pays(Outlook{Left: left, Lasts: 3600e9, Stop: 9500e6}); got.Replan != want || !strings.Contains(got.Reason, "stops them for 9.50 s, as earlier changes did") {
			t.Errorf("with %d steps left: %+v", left, got)
		}
	}
	if got := better.Pays(Outlook{Left: 1e6, Lasts: 20e9, Stop: 9500e6}); got.Replan || !strings.Contains(got.Reason, "gains 4.15 s in 50 steps before a member leaves again") {
		t.Errorf("in a run whose members go every 20 s: %+v", got)
	}
}

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
	link, _ := s.links.between(s.devices[first.Device].peer, s.devices[last.Device].peer)
	if least := schedule.Nanos(want / 2 * 1e9 / link.BytesPerS / 4); took < least {
		t.Errorf("%d bytes over a line of %d bytes/s take %d ns only", want, link.BytesPerS, took)
	}
}
