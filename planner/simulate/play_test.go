package simulate

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// gpu is a device of a size that three of hold the test's model.
var gpu = plan.DeviceProfile{Name: "cuda:0", MatMulFLOPS: 2e10, AttentionFLOPS: 1e10, MemoryBytesPerS: 2e10, MemoryFreeBytes: 300e6, CopyBytesPerS: 1e10}

// fleetOf returns so many machines with equal lines.
func fleetOf(devices ...plan.DeviceProfile) (f Fleet) {
	for range devices {
		f.Machines = append(f.Machines, Machine{To: slices.Repeat([]Link{{BytesPerS: 1.25e8, RTTNanos: 2e6}}, len(devices))})
	}
	for i, d := range devices {
		f.Machines[i].Device = d
	}
	return f
}

// simulatorOf returns a simulator of a small model on a fleet.
func simulatorOf(t *testing.T, f Fleet, trace Trace, constants string) *Simulator {
	t.Helper()
	cfg, err := model.Preset("small-10m")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ConstantsNamed(constants)
	if err != nil {
		t.Fatal(err)
	}
	run := plan.RunSpec{Run: "simulate", Model: cfg, Train: plan.TrainSpec{Micros: 8, MicroBatch: 2, SumGroups: 4}}
	s, err := New(Config{
		Fleet: f, Input: planner.InputOf(run), Trace: trace, Constants: c,
		Make: func(in planner.Input) (plan.Plan, plan.Reasons, error) { return planner.Make(context.Background(), in) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func traceOf(t *testing.T, lines ...string) Trace {
	t.Helper()
	trace, err := ParseTrace(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func play(t *testing.T, s *Simulator, p Policy) Result {
	t.Helper()
	r, err := s.Play(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Samples) == 0 {
		t.Error("no samples")
	}
	r.Samples = nil // too many to print
	return r
}

// six is a fleet of machines with and without memory to spare.
func six() Fleet {
	small := gpu
	small.MemoryFreeBytes = 160e6
	return fleetOf(gpu, gpu, small, gpu, small, small)
}

// TestAllTimeIsAccountedFor: of every policy, under either set of constants, time that was useful and time that was lost add up
// to the run's, to the nanosecond, and the same input gives the same result.
func TestAllTimeIsAccountedFor(t *testing.T) {
	for _, constants := range ConstantsSets {
		for seed := range uint64(2) {
			trace, err := Synthetic{Nodes: 6, SpanNanos: 3 * 3600 * second, EveryNanos: 240 * second, BackNanos: 400 * second, Seed: seed}.Trace()
			if err != nil {
				t.Fatal(err)
			}
			if seed%2 == 1 {
				trace = trace.Noticed(60 * second)
			}
			s, again := simulatorOf(t, six(), trace, constants.Name), simulatorOf(t, six(), trace, constants.Name)
			for _, p := range Policies {
				r := play(t, s, p)
				l := r.Lost
				if sum := r.UsefulNanos + l.Extended + l.GivenUp + l.Changing + l.Redone + l.Saving + l.Redundant + l.Waiting; sum != r.WallNanos {
					t.Errorf("%s, constants %s, seed %d: %d ns of %d are accounted for: %+v", p.Name(), constants.Name, seed, sum, r.WallNanos, r)
				}
				if min(l.Extended, l.GivenUp, l.Changing, l.Redone, l.Saving, l.Redundant, l.Waiting, r.UsefulNanos-1, r.Steps-1) < 0 || r.Answered+r.Left == 0 || r.Joins < 6 {
					t.Errorf("%s, constants %s, seed %d: %+v", p.Name(), constants.Name, seed, r)
				}
				if !reflect.DeepEqual(r, play(t, again, p)) {
					t.Errorf("%s, constants %s, seed %d: another result for the same input", p.Name(), constants.Name, seed)
				}
			}
		}
	}
}

// TestANoticeLosesNoStep: whoever is told in good time hands over at the end of a step.
func TestANoticeLosesNoStep(t *testing.T) {
	lines := []string{"0,add,a", "0,add,b", "0,add,c", "0,add,d", "900000,remove,b", "1800000,add,e", "2700000,remove,a", "3600000,add,f"}
	trace := traceOf(t, lines...)
	with, without := play(t, simulatorOf(t, six(), trace.Noticed(120*second), "measured"), pnode{}), play(t, simulatorOf(t, six(), trace, "measured"), pnode{})
	if with.Notices != 2 || with.Left != 2 || with.Answered != 0 || with.Redone != 0 || with.GivenUp != 0 || with.Lost.Extended != 0 || with.Changes < 2 {
		t.Errorf("with notices: %+v", with)
	}
	if without.Answered == 0 || without.UsefulNanos >= with.UsefulNanos {
		t.Errorf("without: %d ns useful, %d losses answered; with notices %d ns", without.UsefulNanos, without.Answered, with.UsefulNanos)
	}
}

// TestALossWithAReplicaDoesNoStepAgain, and one without any waits for a machine that computes the steps since the checkpoint.
func TestALossWithAReplicaDoesNoStepAgain(t *testing.T) {
	roomy := gpu
	roomy.MemoryFreeBytes = 2e9
	trace := traceOf(t, "0,add,a", "0,add,b", "0,add,c", "0,add,d", "900000,remove,a", "1800000,add,e")
	r := play(t, simulatorOf(t, fleetOf(roomy, roomy, roomy, roomy), trace, "measured"), pnode{})
	if r.Answered != 1 || r.Carried != 1 || r.GivenUp != 0 || r.Redone != 0 || r.Lost.Extended == 0 {
		t.Errorf("with replicas: %+v", r)
	}
	lean := gpu
	lean.MemoryFreeBytes = 140e6
	r = play(t, simulatorOf(t, fleetOf(lean, lean, lean, lean), trace, "measured"), pnode{})
	if r.Answered != 1 || r.Redone != 0 || r.Rollbacks != 0 || r.Lost.Extended+r.Lost.Changing == 0 {
		t.Errorf("without: %+v", r)
	}
}

// TestALossOfAllCopiesGoesBack: when a stage's machine and the one with its copy are lost together, the owner's copy counts.
func TestALossOfAllCopiesGoesBack(t *testing.T) {
	lean := gpu
	lean.MemoryFreeBytes = 140e6
	trace := traceOf(t, "0,add,a", "0,add,b", "0,add,c", "0,add,d", "3600000,remove,a", "3600000,remove,b", "3600000,remove,c", "3600000,remove,d",
		"3700000,add,e", "3700000,add,f", "3700000,add,g", "3700000,add,h", "7200000,remove,e")
	r := play(t, simulatorOf(t, fleetOf(lean, lean, lean, lean), trace, "measured"), pnode{})
	if r.Rollbacks == 0 || r.Redone == 0 || r.Lost.Redone == 0 || r.Lost.Waiting < 100*second {
		t.Errorf("%+v", r)
	}
}

// TestDonorsAreThePlans: who goes on for whom from memory is what plan.Substitutes says.
func TestDonorsAreThePlans(t *testing.T) {
	roomy := gpu
	roomy.MemoryFreeBytes = 600e6
	var seen, able int
	for n := 2; n <= 6; n++ {
		for _, asked := range [][2]int{{0, 0}, {2, 0}, {2, 1}, {1, 2}, {2, 2}, {2, 3}} {
			s := simulatorOf(t, fleetOf(slices.Repeat([]plan.DeviceProfile{roomy}, n)...), traceOf(t, "0,add,a"), "measured")
			s.plans.input.Run.Train.Replicas, s.plans.input.Run.Train.Stages = asked[0], asked[1]
			var made plan.Plan
			s.plans.make = func(in planner.Input) (_ plan.Plan, reasons plan.Reasons, err error) {
				made, reasons, err = planner.Make(t.Context(), in)
				return made, reasons, err
			}
			p, err := s.plans.of([]int{n})
			if err != nil || p == nil {
				t.Fatalf("%d machines: %v", n, err)
			}
			seat := seat(p, [][]int{slots(n)}, nil)
			r := &run{Simulator: s, plan: seat, taken: slices.Repeat([]bool{true}, n), phase: stepping}
			for _, peer := range made.Peers() {
				slot := seat.slot[slices.Index(made.Peers(), peer)]
				if l := r.lossOf([]int{slot}); l.Donor && l.Whole != (len(made.Substitutes(peer)) > 0) {
					t.Errorf("%d machines, %v: donor for %s is %v, substitutes are %v", n, asked, peer, l.Donor, made.Substitutes(peer))
				} else if seen++; l.Donor && l.Whole {
					able++
				}
			}
		}
	}
	if able == 0 || able == seen {
		t.Errorf("%d of %d have a donor", able, seen)
	}
}

// slots returns the first n slots.
func slots(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestPlansAreAskedForOnce: a plan counts for all fleets between the machines that it uses and those that it was made for.
func TestPlansAreAskedForOnce(t *testing.T) {
	trace, err := Synthetic{Nodes: 6, SpanNanos: 24 * 3600 * second, EveryNanos: 600 * second, BackNanos: 600 * second, Seed: 3}.Trace()
	if err != nil {
		t.Fatal(err)
	}
	s := simulatorOf(t, fleetOf(gpu, gpu, gpu, gpu, gpu, gpu), trace, "measured")
	for _, p := range Policies {
		play(t, s, p)
	}
	if n := s.Searches(); n == 0 || n > 7 {
		t.Errorf("%d searches for fleets of 0 to 6 like machines", n)
	}
}

// TestClassesAreOfLikeMachines: machines are alike where device and lines are.
func TestClassesAreOfLikeMachines(t *testing.T) {
	f := six()
	c, err := classesOf(f)
	if err != nil || !reflect.DeepEqual(c.of, []int{0, 0, 1, 0, 1, 1}) || !c.even {
		t.Errorf("%v, even %v, %v", c.of, c.even, err)
	}
	f.Machines[1].To[3].RTTNanos++
	if c, err = classesOf(f); err != nil || c.of[1] == c.of[0] || c.of[3] == c.of[1] || c.even {
		t.Errorf("another line: %v, even %v, %v", c.of, c.even, err)
	}
	f.Machines[2].To = nil
	if _, err := classesOf(f); err == nil {
		t.Error("a machine without lines")
	}
}

// TestReports prints a comparison.
func TestReports(t *testing.T) {
	trace := traceOf(t, "0,add,a", "0,add,b", "0,add,c", "900000,remove,b", "1800000,add,e", "3600000,remove,a")
	s := simulatorOf(t, six(), trace, "oobleck")
	report := Report{Trace: trace, Constants: s.Constants, PriceMillis: 910}
	for _, p := range Policies {
		report.Results = append(report.Results, play(t, s, p))
	}
	var text, lines bytes.Buffer
	if err := report.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := report.JSON(&lines); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"policy", "time kept", "tokens per unit", "checkpoint-restart", "at most 3 machines at a time; lost 2, came 4", "constants oobleck: Oobleck's simulator"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if n := strings.Count(lines.String(), `"tokens_per_unit":`); n != len(Policies) {
		t.Errorf("%d of %d results in JSON have tokens for money", n, len(Policies))
	}
}

// TestTracesOfAFolder plays the traces of the folder that PNODE_TRACES names.
func TestTracesOfAFolder(t *testing.T) {
	dir := os.Getenv("PNODE_TRACES")
	if dir == "" {
		t.Skip("PNODE_TRACES names no folder with traces")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no *.csv in %s: %v", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		trace, err := ParseTrace(string(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		r := play(t, simulatorOf(t, fleetOf(gpu), trace, "measured"), pnode{})
		t.Logf("%s: %d losses, kept %s", filepath.Base(file), r.Losses, r.Kept())
		if r.Steps == 0 {
			t.Errorf("%s: %+v", file, r)
		}
	}
}

// TestALongStepIsGivenUp where that costs less than the longer step, as a run's leader has it.
func TestALongStepIsGivenUp(t *testing.T) {
	c, err := ConstantsNamed("measured")
	if err != nil {
		t.Fatal(err)
	}
	loss := func(step, busy, elapsed int64, of int) Loss {
		return Loss{
			Facts: Facts{StepNanos: step * second}, Of: of, Machines: 1, InStep: true, ElapsedNanos: elapsed * second, BusyNanos: busy * second,
			DonorNanos: busy * second, Donor: true, InMemory: true, Stored: true, Whole: true,
		}
	}
	for name, one := range map[string]struct {
		loss Loss
		ends bool
	}{
		"it has just begun":     {loss(23, 20, 1, 29), true},
		"nearly all is done":    {loss(23, 20, 19, 29), false},
		"a short one":           {loss(1, 1, 0, 29), false},
		"few machines are left": {loss(23, 20, 1, 2), false},
	} {
		if got := (pnode{}).Lost(c, one.loss); got.Ends != one.ends || got.Ends == (got.Extends > 0) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestWhoSavesWhat: at a pause each machine saves all that it has, and the first one counts. After a plan has ended those with the same
// layers share them, so that the last layer can be read sooner.
func TestWhoSavesWhat(t *testing.T) {
	p := simulatorOf(t, fleetOf(gpu), Trace{}, "measured").plans
	layers := len(p.input.Costs)
	of := func(first, end int) layerSet {
		s := newLayerSet(layers)
		s.add(plan.LayerRange{First: first, End: end})
		return s
	}
	all, block := p.stateBytes(of(0, layers)), p.stateBytes(of(1, 2))
	for _, c := range []struct {
		name          string
		held          map[int]layerSet
		pause, shared int64
	}{
		{"one has all", map[int]layerSet{0: of(0, layers)}, all, all},
		{"another has one layer as well", map[int]layerSet{0: of(0, layers), 1: of(1, 2)}, all, all - p.stateBytes(of(1, 2))},
		{"two have the same", map[int]layerSet{0: of(1, 5), 1: of(1, 5)}, 4 * block, 2 * block},
		{"four have the same", map[int]layerSet{0: of(1, 5), 1: of(1, 5), 2: of(1, 5), 3: of(1, 5)}, 4 * block, block},
		{"two stages", map[int]layerSet{0: of(1, 3), 1: of(3, 4)}, 2 * block, 2 * block},
	} {
		if pause, shared := p.saveBytes(c.held, false), p.saveBytes(c.held, true); pause != c.pause || shared != c.shared {
			t.Errorf("%s: %d at a pause and %d shared, want %d and %d", c.name, pause, shared, c.pause, c.shared)
		}
	}
}
