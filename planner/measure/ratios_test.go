package measure

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"pnode/planner/plan"
)

// fleet has devices that are to compute for 100 ms a step, and do for that many permille of it.
type fleet struct {
	Ratios
	step    plan.Step
	changes []plan.Step
}

func name(device int) plan.WorkerID {
	return plan.WorkerID{Peer: plan.PeerID(rune('a' + device)), Device: "cpu"}
}

const fleetRate int64 = 1_000_000_000

func (f *fleet) steps(n int, of ...Work) {
	for range n {
		f.step++
		for i := range of {
			of[i].Worker, of[i].Rate, of[i].PlannedNanos = name(i), fleetRate, 100e6
		}
		if f.Note(f.step, of) {
			f.changes = append(f.changes, f.step)
		}
	}
}

func (f *fleet) of(device int) int64 { return f.Of(name(device), fleetRate).Permille }

func owner(permille int64) Work    { return Work{ReportedNanos: permille * 100e3, Believed: true} }
func stranger(permille int64) Work { return Work{ReportedNanos: permille * 100e3} }
func slower(w Work) Work           { w.Slower = true; return w }

// TestRatioOfADeviceThatSlowsDown: where its member says so it counts at once, else after some steps, and once each way.
func TestRatioOfADeviceThatSlowsDown(t *testing.T) {
	for _, told := range []bool{true, false} {
		var f fleet
		f.steps(10, owner(1000), owner(1000), owner(1000))
		f.steps(2, owner(1000), owner(3000), owner(1000))
		if told {
			f.steps(1, owner(1000), slower(owner(3000)), owner(1000))
		}
		f.steps(20, owner(1000), owner(3000), owner(1000))
		if f.of(1) != 2828 || f.of(0) != 1000 || len(f.changes) != 1 || f.Changed() < 11 || f.Changed() > 12 {
			t.Errorf("told %v: %d, changed at %v, by step %d", told, f.of(1), f.changes, f.Changed())
		}
		if told && f.changes[0] != 13 || !told && f.changes[0] > 10+agreeing+2 {
			t.Errorf("told %v: changed at %v", told, f.changes)
		}
		f.steps(60, owner(1000), owner(1000), owner(1000))
		if f.of(1) != 1000 || len(f.changes) != 2 || len(f.Known()) != 0 {
			t.Errorf("told %v: back at its speed it counts %d, changed at %v", told, f.of(1), f.changes)
		}
	}
}

// TestRatioOfNoise: what goes up and down changes nothing, nor does one slow step, nor what all have in common.
func TestRatioOfNoise(t *testing.T) {
	var f fleet
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 1000 {
		noisy := func(of int64) Work { return owner(of * (95 + rng.Int64N(11)) / 100) }
		of := []Work{noisy(2000), noisy(2000), noisy(2000)}
		if i%20 == 0 {
			of[i/20%3] = owner(10000)
		}
		f.steps(1, of...)
	}
	if f.changes != nil {
		t.Errorf("changed at %v", f.changes)
	}
}

// TestRatioOfADeviceThatComesAndGoes: the more often it was slow, the longer it has to be fast before it counts as that.
func TestRatioOfADeviceThatComesAndGoes(t *testing.T) {
	var f fleet
	for range 20 {
		f.steps(20, owner(1000), owner(1000))
		f.steps(2, owner(1000), owner(3000))
		f.steps(1, owner(1000), slower(owner(3000)))
		f.steps(17, owner(1000), owner(3000))
	}
	if len(f.changes) > 3 {
		t.Errorf("changed at %v", f.changes)
	}
}

// TestRatioOfALiar: a member that is no owner's gets no more than its profile, nor do others less than they say themselves.
func TestRatioOfALiar(t *testing.T) {
	var f fleet
	f.steps(50, owner(1000), stranger(10), stranger(1000))
	if f.changes != nil {
		t.Errorf("says that it is fast: changed at %v, counts %d, %d, %d", f.changes, f.of(0), f.of(1), f.of(2))
	}
	f.steps(50, owner(1000), slower(stranger(1<<50)), stranger(1000))
	if f.of(0) != 1000 || f.of(1) != MostRatio || f.of(2) != 1000 {
		t.Errorf("says that it is slow: counts %d, %d, %d", f.of(0), f.of(1), f.of(2))
	}
	var all fleet // all others lie that they are slow
	all.steps(50, owner(1000), slower(stranger(90_000)), slower(stranger(90_000)))
	if all.of(0) != 1000 || all.of(1) != MostRatio {
		t.Errorf("others say that they are slow: an owner counts %d", all.of(0))
	}
	var fast fleet
	if fast.steps(50, owner(400), stranger(400)); fast.of(0) != 354 || fast.of(1) != 1000 {
		t.Errorf("fast ones count %d and %d", fast.of(0), fast.of(1))
	}
}

// TestRatioUnderAnotherProfile: a lower rate has in it what was seen, a much higher one is news.
func TestRatioUnderAnotherProfile(t *testing.T) {
	var f fleet
	f.steps(50, owner(1000), owner(3000))
	for rate, want := range map[int64]int64{fleetRate: 2828, fleetRate * 9 / 10: 2828, fleetRate / 3: 1000, fleetRate * 11 / 10: 2828, 8 * fleetRate: 1000, plan.MaxFLOPS: 1000, 1: 1000} {
		if got := f.Of(name(1), rate); got != (Ratio{name(1), want}) {
			t.Errorf("rate %d: %+v, want %d", rate, got, want)
		}
	}
	if got := f.Known(); !reflect.DeepEqual(got, []plan.WorkerID{name(1)}) {
		t.Errorf("known %v", got)
	}
	if f.Forget(name(1)); f.of(1) != 1000 {
		t.Errorf("forgotten, it counts %d", f.of(1))
	}
}
