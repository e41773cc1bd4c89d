package node

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

var (
	fleetSeeds = flag.Int("fleets", 3, "so many seeds TestFleetsSurviveFaults tries: go test ./node -run FleetsSurvive -fleets 100 -timeout 2h")
	fleetSeed  = flag.Uint64("fleet", 0, "the only seed that TestFleetsSurviveFaults tries; 0 is all")
	fleetNodes = flag.Int("fleetnodes", 5, "so many nodes its fleets have at least")
)

// TestFleetsSurviveFaults: whole nodes train while random ones are killed, started again, cut off in one direction or both,
// slowed down, asked to leave, and join. After each fault the run goes on; at its end no step is lost or done twice, and
// commits and weights are those of one node that nothing disturbs.
func TestFleetsSurviveFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of processor time")
	}
	size := fleetSize{Steps: 30, Stages: 2, Replicas: 2, CheckpointEvery: 5, MinNodes: 4}
	known := undisturbed(t, size)
	from, to := uint64(1), uint64(*fleetSeeds)
	if *fleetSeed != 0 {
		from, to = *fleetSeed, *fleetSeed
	}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				playFaults(newFleet(t, size, known.again()), rand.New(rand.NewPCG(seed, 23)))
			})
		})
	}
}

// Bounds of what happens to a fleet. They leave a majority of its voters.
const (
	moreNodes      = 2 // at most, besides -fleetnodes
	faultsOfAFleet = 3
	// goesOn bounds the time from a fault to the next step.
	goesOn = 10 * time.Minute
)

// playFaults trains a fleet and has one thing after the other happen to it.
func playFaults(f *fleet, r *rand.Rand) {
	f.Helper()
	invite := f.add().found()
	for range *fleetNodes - 1 + r.IntN(moreNodes+1) {
		f.add().join(invite)
	}
	began := time.Now()
	for i := range faultsOfAFleet {
		at := plan.Step(2 + i*(f.size.Steps-10)/faultsOfAFleet + r.IntN(6))
		f.until(fmt.Sprintf("step %d", at), goesOn, func() bool { return f.truth.reached() >= at || f.over() })
		if f.over() {
			break
		}
		what, heal := f.happen(r, invite)
		f.Logf("%v, step %d: %s", time.Since(began).Round(time.Millisecond), f.truth.reached(), what)
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Millisecond)
		heal()
		before := f.truth.reached()
		f.until("a step after "+what, goesOn, func() bool { return f.truth.reached() > before || f.over() })
	}
	for i, err := range f.untilEnded(time.Hour) {
		if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, ErrFinished) && !errors.Is(err, ErrUnreachable) {
			f.Errorf("node %d: %v", i, err)
		}
	}
	redone := f.check()
	f.Logf("%d nodes, %d generations, %d steps computed again, %v", len(f.members), len(f.truth.plans)-1, redone, time.Since(began).Round(time.Second))
	if most := faultsOfAFleet * 2 * f.size.CheckpointEvery; redone > most {
		f.Errorf("%d steps were computed again, at most %d may be", redone, most)
	}
}

// over reports whether the run has reached its last step.
func (f *fleet) over() bool { return f.truth.reached() == plan.Step(f.size.Steps) }

// happen begins a random fault, and returns what ends it.
func (f *fleet) happen(r *rand.Rand, invite string) (what string, heal func()) {
	var up []*member
	for _, m := range f.members {
		if m.node() != nil {
			up = append(up, m)
		}
	}
	m, other := up[r.IntN(len(up))], up[r.IntN(len(up))]
	network := func(what string, begin func()) (string, func()) {
		f.faults.set(begin)
		return what, f.faults.heal
	}
	switch r.IntN(8) {
	case 0, 1:
		told := slices.DeleteFunc(slices.Clone(up), func(o *member) bool { return o == m || r.IntN(4) == 0 })
		m.kill(told...)
		if m.number != 0 && r.IntN(2) == 0 {
			return m.name() + " is killed for good", func() {}
		}
		return m.name() + " is killed, and started again", func() { m.join("") }
	case 2:
		return network(m.name()+" is cut off", func() { f.faults.mute[m.addr()], f.faults.deaf[m.addr()] = true, true })
	case 3:
		return network(m.name()+" is mute", func() { f.faults.mute[m.addr()] = true })
	case 4:
		return network(m.name()+" is deaf to "+other.name(), func() { f.faults.cut[[2]netip.Addr{other.addr(), m.addr()}] = true })
	case 5:
		return network(m.name()+" is slow", func() { f.faults.late[m.addr()] = time.Duration(20+r.IntN(200)) * time.Millisecond })
	case 6:
		if m.number != 0 {
			m.process.end()
			return m.name() + " is asked to leave", func() {}
		}
	}
	joins := f.add()
	joins.join(invite)
	return joins.name() + " joins", func() {}
}
