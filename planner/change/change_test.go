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
		o := Outlook{Left: plan.Step(r.Uint64() >> r.IntN(64)), Lasts: anyNanos(r), Stops: []Stop{{Load: anyNanos(r)}}}
		if r.IntN(4) == 0 {
			o.Stops = nil
		}
		c.Now = min(c.Now, math.MaxInt64-shortStop)
		pays, why := c.Pays(o)
		steps := new(integer.Int).SetUint64(uint64(o.Left))
		if lasts := new(integer.Int).Div(integer.NewInt(int64(o.Lasts)), integer.NewInt(max(int64(c.Then), 1))); lasts.Cmp(steps) < 0 {
			steps = lasts
		}
		stop := int64(shortStop + c.Now)
		if len(o.Stops) > 0 {
			stop = int64(o.Stops[0].Load)
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
	if got := gone.Pays(Outlook{}); !got.Replan || got.Reason != gone.Reason {
		t.Errorf("%+v", got)
	}
	// 83 ms of 483 ms, and a stop of 9.5 s.
	better := Decision{Replan: true, Reason: "better", Change: Change{Now: 483e6, Then: 400e6}}
	for left, want := range map[plan.Step]bool{114: false, 115: true} {
		if got := better.Pays(Outlook{Left: left, Lasts: 3600e9, Stops: []Stop{{Load: 9500e6}}}); got.Replan != want || !strings.Contains(got.Reason, "stops them for about 9.5 s: the last one took 9.5 s") {
			t.Errorf("with %d steps left: %+v", left, got)
		}
	}
	if got := better.Pays(Outlook{Left: 1e6, Lasts: 20e9, Stops: []Stop{{Load: 9500e6}}}); got.Replan || !strings.Contains(got.Reason, "gains 4.2 s in 50 steps before a member leaves again") {
		t.Errorf("in a run whose members go every 20 s: %+v", got)
	}
}

// TestWhatAChangeCostsIsLearned: from each part of earlier changes on its own, and told with how far these were apart.
func TestWhatAChangeCostsIsLearned(t *testing.T) {
	for _, c := range []struct {
		name string
		move schedule.Nanos
		past []Stop
		want schedule.Nanos
		told string
	}{
		{"none was made", 0, nil, 3e9, "3 s, as is assumed before the first change"},
		{"none was made, and lines are slow", 126e9, nil, 126e9, "2 min 6 s, for 85.8 MiB of state on the way"},
		{"the first took longer", 0, []Stop{{Rest: 20e9, Load: 9e9}}, 29e9, "about 29 s: the last one took 29 s"},
		{"one of many did", 0, []Stop{{1, 1e9, 3e9, 0}, {1, 20e9, 9e9, 0}, {1, 1e9, 3e9, 0}}, 4e9, "about 4 s: the last 3 took 4 s to 29 s"},
		{"state came faster than predicted", 126e9, []Stop{{1, 2e9, 10e9, 120e9}}, 12500e6, "about 12 s, 10 s of them for 85.8 MiB of state on the way: the last one took 12 s"},
		{"state came more slowly", 10e9, []Stop{{1, 1e9, 80e9, 20e9}}, 41e9, "about 41 s, 40 s of them for 85.8 MiB of state on the way: the last one took 1 min 21 s"},
		{"little moves after much did", 0, []Stop{{1, 1e9, 80e9, 20e9}}, 3e9, "about 3 s: the last one took 1 min 21 s"},
		{"much moves after little did", 50e9, []Stop{{1, 1e9, 3e9, 1e9}}, 51e9, "about 51 s, 50 s of them for 85.8 MiB of state on the way: the last one took 4 s"},
		{"a prediction that was far off", 10e9, []Stop{{1, 0, 1, 20e9}}, 2e9, "about 2 s: the last one took 0 ms"},
		{"no time at all has bounds", math.MaxInt64, []Stop{{1, math.MaxInt64, math.MaxInt64, 2e9}}, math.MaxInt64, ""},
	} {
		got, told := Change{Now: 2e9, Then: 1e9, Bytes: 90e6, Move: c.move}.stop(Outlook{Stops: c.past})
		if d := got - c.want; d > 0 || d < -60e6 || c.told != "" && told != c.told {
			t.Errorf("%s: %d, %q, want %d, %q", c.name, got, told, c.want, c.told)
		}
	}
}
