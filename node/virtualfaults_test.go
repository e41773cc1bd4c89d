package node

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

var (
	fleetSeeds = flag.Int("fleets", 10, "so many seeds TestFleetsSurviveFaults tries: go test ./node -run FleetsSurvive -fleets 100 -timeout 3h")
	fleetSeed  = flag.Uint64("fleet", 0, "the only seed that TestFleetsSurviveFaults tries; 0 is all")
	fleetLeast = flag.Int("fleetleast", 20, "so many nodes its fleets have at least")
	fleetMost  = flag.Int("fleetmost", 50, "so many nodes its fleets have at most")
)

// fleetNodes draws the size of a fleet: any that the flags allow, small ones most often, since what a fleet costs grows with the
// square of its size.
func fleetNodes(r *rand.Rand) int {
	u := r.Float64()
	return *fleetLeast + int(u*u*u*float64(*fleetMost-*fleetLeast+1))
}

// TestFleetsSurviveFaults: whole nodes train while random ones are killed, started again, cut off in one direction or both,
// slowed down, asked to leave, and join. A seed fixes the size of the fleet, its keys, and of each fault the kind, the
// step and how long it lasts; whom it meets follows from the plan of that moment, and how goroutines take turns it does not fix.
// After each fault the run goes on within goesOn, every commit is that of one node which nothing disturbs, and no sample has entered
// twice. At any time one node leads in a term, the layers of a checkpoint in the log are there, and no node stands still without
// saying why. At the end no step is lost or done twice, and the weights are those of that one node.
func TestFleetsSurviveFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes of processor time")
	}
	onOneProcessor(t)
	size := faultySize
	known := undisturbed(t, size)
	from, to := uint64(1), uint64(*fleetSeeds)
	if *fleetSeed != 0 {
		from, to = *fleetSeed, *fleetSeed
	}
	for seed := from; seed <= to; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			again := fmt.Sprintf("go test ./node -run FleetsSurvive -v -fleet %d -fleetleast %d -fleetmost %d", seed, *fleetLeast, *fleetMost)
			defer func() {
				if t.Failed() {
					t.Logf("the same faults again: %s", again)
				}
			}()
			cryptotest.SetGlobalRandom(t, seed)
			watched(t, again, func(t *testing.T, passed *atomic.Int64) {
				r := rand.New(rand.NewPCG(seed, 23))
				f := newFleet(t, size.drawn(r), known.again())
				f.faults.passed = passed
				playFaults(f, seed, fleetNodes(r))
			})
		})
	}
}

// TestAFleetOnSocketsSurvivesFaults: the same with QUIC's packets on simulated sockets, for a few nodes.
func TestAFleetOnSocketsSurvivesFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute of processor time")
	}
	const seed = 1
	onOneProcessor(t)
	size := faultySize
	size.Packets = true
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		playFaults(newFleet(t, size.drawn(rand.New(rand.NewPCG(seed, 23))), known.again()), seed, 8)
	})
}

// faultySize describes what fleets train to which things happen.
var faultySize = fleetSize{Steps: 24, CheckpointEvery: 5, Lines: true}

// drawn has a size with a random number of stages and replicas.
func (s fleetSize) drawn(r *rand.Rand) fleetSize {
	s.Stages, s.Replicas = 2+r.IntN(2), 1+r.IntN(2)
	s.MinNodes = s.Stages * s.Replicas
	return s
}

// onOneProcessor has a test run on one processor, where goroutines of a bubble, which wait for one another most of the time,
// cost a fifth less, and the memory of many nodes be searched less often.
func onOneProcessor(t *testing.T) {
	processors, percent := runtime.GOMAXPROCS(1), debug.SetGCPercent(400)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(processors)
		debug.SetGCPercent(percent)
	})
}

// Bounds of what happens to a fleet. They leave a majority of its voters.
const (
	faultsOfAFleet = 3
	// goesOn bounds the time from a fault to the next step.
	goesOn = 2 * time.Minute
)

// playFaults trains a fleet of some nodes and has one thing after the other happen to it.
func playFaults(f *fleet, seed uint64, nodes int) {
	f.Helper()
	invite := f.add().found()
	for range nodes - 1 {
		f.add().join(invite)
		time.Sleep(time.Millisecond) // each makes its key before the next one does
	}
	began := time.Now()
	for i := range faultsOfAFleet {
		r := rand.New(rand.NewPCG(seed, uint64(i))) // whatever was drawn before
		at := plan.Step(2 + i*(f.size.Steps-10)/faultsOfAFleet + r.IntN(6))
		f.until(fmt.Sprintf("step %d", at), goesOn, func() bool { return f.truth.reached() >= at || f.over() })
		if f.over() {
			break
		}
		lasts := time.Duration(r.IntN(14_000)) * time.Millisecond
		what, heal := f.happen(r, invite)
		f.Logf("%v, step %d: %s", time.Since(began).Round(time.Millisecond), f.truth.reached(), what)
		time.Sleep(lasts)
		heal()
		before := f.truth.reached()
		f.until("a step after "+what, goesOn, func() bool { return f.truth.reached() > before || f.over() })
		if err := f.soFar(); err != nil {
			f.Fatalf("after %s: %v", what, err)
		}
	}
	// A member may be killed, or asked to leave, on its way in.
	fine := []error{nil, errKilled, ErrInterrupted, ErrFinished, ErrUnreachable}
	for i, err := range f.untilEnded(time.Hour) {
		if !slices.ContainsFunc(fine, func(f error) bool { return errors.Is(err, f) }) {
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

// busy reports whether a member has a part in the plan, or leads.
func (m *member) busy() bool {
	n := m.node()
	if n == nil {
		return false
	}
	_, _, leads := n.raft.Leader()
	return leads || n.raft.State().Plan.Places(n.self)
}

// soFar checks what has been computed until now.
func (f *fleet) soFar() error {
	run, err := LoadRun(f.members[0].dir)
	if err != nil {
		return err
	}
	return f.truth.soFar(f.dirs(), run)
}

// happen begins a random fault, and returns what ends it.
func (f *fleet) happen(r *rand.Rand, invite string) (what string, heal func()) {
	var up []*member
	for _, m := range f.members {
		if m.node() != nil {
			up = append(up, m)
		}
	}
	kind, of := r.IntN(8), up
	if busy := slices.DeleteFunc(slices.Clone(up), func(m *member) bool { return !m.busy() }); len(busy) > 1 && r.IntN(3) > 0 {
		of = busy
	}
	two := r.Perm(len(of))
	m, other := of[two[0]], of[two[len(two)-1]] // the same where one alone is up
	network := func(what string, begin func()) (string, func()) {
		f.faults.set(begin)
		return what, f.faults.heal
	}
	switch kind {
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
