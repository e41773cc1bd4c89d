package planner

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// cardInput is shardInput of one replica on cards, whose nodes have so much memory for what they
// keep off them.
func cardInput(stages int, free, host, copies int64) Input {
	in := shardInput(stages, free)
	in.Run.Train.Replicas, in.Run.Train.SumGroups, in.Members = 1, 1, in.Members[:stages]
	for i := range in.Members {
		d := &in.Members[i].Profile.Devices[0]
		d.Name, d.CopyBytesPerS, d.HostFreeBytes = "cuda:0", copies, host
	}
	return in
}

func offloads(p plan.Plan) (n int) {
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			if place.Offload {
				n++
			}
		}
	}
	return n
}

// TestOffloadIsChosenByMemory takes memory away. With much of it nothing is offloaded; at some
// point it is, for a step that is shorter than what there is without, or because nothing else
// fits; and the plan says so.
func TestOffloadIsChosenByMemory(t *testing.T) {
	for _, stages := range []int{1, 2} {
		var fits, helps int
		for free := int64(32 << 20); ; free -= free / int64(casesOf(16, 6)) {
			in := cardInput(stages, free, 1<<30, 1e9)
			plan, reasons, err := Make(t.Context(), in)
			if err != nil {
				if !errors.Is(err, ErrNoFit) {
					t.Fatal(err)
				}
				break
			}
			_, here, fail := Make(t.Context(), cardInput(stages, free, 0, 1e9))
			told := strings.Contains(strings.Join(reasons.Lines(), "\n"), "of optimizer state in host memory to fit")
			switch n := offloads(plan); {
			case told != (n > 0):
				t.Fatalf("%d bytes, %d stages offload: %v", free, n, reasons.Lines())
			case n == 0 && (fail != nil || stepNanos(here) != stepNanos(reasons)):
				t.Fatalf("%d bytes: nothing is offloaded, but without host memory it differs: %v", free, fail)
			case n > 0 && fail != nil:
				fits++
			case n > 0:
				helps++
				if stepNanos(reasons) >= stepNanos(here) {
					t.Errorf("%d bytes: offloaded for a step of %d, without %d", free, stepNanos(reasons), stepNanos(here))
				}
			}
			checkPlan(t, in, plan, reasons)
			checkOffload(t, in, plan)
		}
		if fits == 0 || helps == 0 {
			t.Errorf("%d stages: offload made %d plans fit and %d shorter", stages, fits, helps)
		}
	}
}

// checkOffload wants stages, as they will be allocated, to fit on their devices and in the memory
// of their nodes.
func checkOffload(t *testing.T, in Input, p plan.Plan) {
	t.Helper()
	list, err := p.Programs()
	if err != nil {
		t.Fatal(err)
	}
	for w, worker := range p.Workers() {
		device, host := in.NodeBytes, int64(0)
		for _, at := range p.StagesOf(worker) {
			u := list.Use(w, at.Replica, at.Stage)
			m, err := in.Run.StageStack(p, at, schedule.Use{Slots: u.Slots, Split: u.Split}).Memory()
			if err != nil {
				t.Fatal(err)
			}
			if (m.Host > 0) != p.At(at).Offload || m.Host > 0 && m.Moments > 0 {
				t.Errorf("%v, offload %t: %+v", at, p.At(at).Offload, m)
			}
			device, host = device+m.Total(), host+m.Host
		}
		i := slices.IndexFunc(in.Members, func(m Member) bool { return m.Peer == worker.Peer })
		if d := in.Members[i].Profile.Devices[0]; device > d.MemoryFreeBytes || host > d.HostFreeBytes {
			t.Errorf("%s takes %d bytes of %d, and %d of its node's %d", worker.Peer, device, d.MemoryFreeBytes, host, d.HostFreeBytes)
		}
	}
}

// TestOffloadNeedsHostMemoryAndCopies: a device that is the node's processor, or whose node has
// too little, fits no more than before.
func TestOffloadNeedsHostMemoryAndCopies(t *testing.T) {
	const free = 9 << 20
	if plan, _, err := Make(t.Context(), cardInput(1, free, 1<<30, 1e9)); err != nil || offloads(plan) != 1 {
		t.Fatalf("%d stages offload: %v", offloads(plan), err)
	}
	for name, in := range map[string]Input{
		"no host memory": cardInput(1, free, 0, 1e9), "hardly any": cardInput(1, free, 1<<20, 1e9),
		"no copies": cardInput(1, free, 1<<30, 0),
	} {
		if plan, _, err := Make(t.Context(), in); err == nil && offloads(plan) > 0 || err != nil && !errors.Is(err, ErrNoFit) {
			t.Errorf("%s: %d stages offload, %v", name, offloads(plan), err)
		}
	}
	if plan, _, err := Make(t.Context(), cardInput(2, free, plan.MaxMemoryBytes, plan.MaxMemoryBytesPerS)); err != nil || offloads(plan) == 0 {
		t.Errorf("without end: %d stages offload, %v", offloads(plan), err)
	}
}

// TestOffloadUnderOtherSchedules, with replicas that hold parts, and stages of one device together.
func TestOffloadUnderOtherSchedules(t *testing.T) {
	some := 0
	for _, text := range []string{"", "gpipe", "zb-h1", "interleaved:v=2", "chimera"} {
		for free := int64(16 << 20); free > 4<<20; free -= free / 10 {
			in := cardInput(2, free, 16<<20, 2e9)
			in.Run.Train.Schedule, in.Run.Train.SumGroups = text, 2 // chimera has two replicas
			plan, reasons, err := Make(t.Context(), in)
			if errors.Is(err, ErrNoFit) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if offloads(plan) > 0 {
				some++
			}
			if slices.ContainsFunc(reasons.Lines(), func(line string) bool { return len(line) > 512 }) {
				t.Errorf("%s: a reason is too long: %v", text, reasons.Lines())
			}
			checkOffload(t, in, plan)
			if result, err := predicted(in, plan); err != nil || int64(result.Step) != stepNanos(reasons) {
				t.Errorf("%s: predicted %d (%v), promised %d", text, result.Step, err, stepNanos(reasons))
			}
		}
	}
	if some < 5 {
		t.Errorf("%d plans that offload show little", some)
	}
}

// TestRandomPlansOfCards: as TestRandomPlans, with cards among the devices.
func TestRandomPlansOfCards(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	planned, offload := 0, 0
	n := casesOf(30, 3)
	for range n {
		in := randomInput(rng)
		in.Run.Train.SumGroups = 1
		for _, m := range in.Members {
			for i := range m.Profile.Devices {
				if d := &m.Profile.Devices[i]; rng.IntN(2) == 0 {
					d.CopyBytesPerS, d.HostFreeBytes = 1e8+rng.Int64N(2e10), rng.Int64N(1<<26)
					d.MemoryFreeBytes = min(d.MemoryFreeBytes, 1<<20+rng.Int64N(1<<25))
				}
			}
		}
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			continue
		}
		planned, offload = planned+1, offload+min(1, offloads(p))
		checkPlan(t, in, p, reasons)
		again, reasons2, err := Make(t.Context(), shuffled(rng, in))
		if err != nil || !bytes.Equal(p.Encode(), again.Encode()) || !slices.Equal(reasons, reasons2) {
			t.Fatalf("another order of members gives another plan:\n%s\n%s\n%v", p.Encode(), again.Encode(), err)
		}
		if result, err := predicted(in, p); err != nil || int64(result.Step) != stepNanos(reasons) {
			t.Fatalf("predicted %d (%v), promised %d", result.Step, err, stepNanos(reasons))
		}
		checkSuccessor(t, rng, in, p)
	}
	if planned < n/2 || offload < n/10 {
		t.Errorf("%d of %d could be planned, %d with offload", planned, n, offload)
	}
}
