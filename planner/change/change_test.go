package change

import (
	"math"
	integer "math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

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
		pays, why := c.Pays(o)
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
		for what, again := range map[string]bool{"a shorter step": first(faster.Pays(o)), "more time": first(c.Pays(later)), "less to move": first(moved.Pays(o))} {
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
	better := Decision{Replan: true, Reason: "better", Change: Change{Now: 483e6, Then: 400e6}}
	for left, want := range map[plan.Step]bool{114: false, 115: true} {
		if got := better.Pays(Outlook{Left: left, Lasts: 3600e9, Stop: 9500e6}); got.Replan != want || !strings.Contains(got.Reason, "stops them for 9.50 s, as earlier changes did") {
			t.Errorf("with %d steps left: %+v", left, got)
		}
	}
	if got := better.Pays(Outlook{Left: 1e6, Lasts: 20e9, Stop: 9500e6}); got.Replan || !strings.Contains(got.Reason, "gains 4.15 s in 50 steps before a member leaves again") {
		t.Errorf("in a run whose members go every 20 s: %+v", got)
	}
}
