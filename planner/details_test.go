package planner

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// TestDetailsAddUp: whatever the plan, a step is its parts, devices do not compute for longer than the passes take, and
// stages have all layers and the memory that reasons tell of.
func TestDetailsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	inputs := []Input{lanedOf(t, "1f1b", 3, 1<<40), lanedOf(t, "zb-h1", 3, 1<<40), lanedOf(t, "chimera", 4, 1<<40)}
	grouped, _, _ := groupedNodes(t)
	inputs = append(inputs, grouped)
	fixed := len(inputs)
	for range casesOf(20, 5) {
		inputs = append(inputs, randomInput(rng))
	}
	made := 0
	for i, in := range inputs {
		d, err := MakeWithDetails(t.Context(), in)
		if err != nil {
			continue // a random model may not fit
		}
		made++
		if i < fixed {
			p, reasons, err := Make(t.Context(), in)
			if err != nil || string(d.Plan.Encode()) != string(p.Encode()) || !slices.Equal(d.Reasons, reasons) {
				t.Errorf("input %d: details of another plan, %v: %v", i, err, d.Reasons.Lines())
			}
		}
		if sum := d.Passes + d.Exchange + d.Commit + d.Update; sum != d.Step || int64(d.Step) != stepNanos(d.Reasons) || d.Unlinked > d.Passes || d.Unlinked <= 0 {
			t.Errorf("input %d: a step of %d has parts of %d, and passes of %d that would be %d", i, d.Step, sum, d.Passes, d.Unlinked)
		}
		checkDevices(t, i, in, d)
	}
	if made < max(len(inputs)/2, fixed) {
		t.Errorf("%d plans of %d inputs", made, len(inputs))
	}
}

// checkDevices compares the devices of details with their plan.
func checkDevices(t *testing.T, i int, in Input, d Details) {
	t.Helper()
	layers := make([]int, len(d.Plan.Replicas))
	for _, device := range d.Devices {
		if device.Busy > d.Unlinked || device.NeedBytes <= 0 || device.NeedBytes > device.TotalBytes || device.TotalBytes > device.Profile.MemoryFreeBytes {
			t.Errorf("input %d: %s computes for %d of %d in %d of %d bytes", i, device.Node, device.Busy, d.Unlinked, device.NeedBytes, device.TotalBytes)
		}
		var busy schedule.Nanos
		for _, s := range device.Stages {
			layers[s.At.Replica] += s.Layers.Len()
			busy += schedule.Nanos(s.Micros) * s.Micro
			place := d.Plan.At(s.At)
			if place.Worker() != device.Worker || place.Layers != s.Layers || s.InFlight < 1 || s.InFlight > s.Micros*4 {
				t.Errorf("input %d: stage %+v of %v is %+v in the plan", i, s, device.Worker, place)
			}
			if s.Sends && s.Link == (cost.Link{}) {
				t.Errorf("input %d: stage %v sends over no link", i, s.At)
			}
		}
		if busy != device.Busy {
			t.Errorf("input %d: %s computes for %d, its stages for %d", i, device.Node, device.Busy, busy)
		}
	}
	for r, n := range layers {
		if n != len(in.Costs) {
			t.Errorf("input %d: replica %d has %d layers of %d", i, r, n, len(in.Costs))
		}
	}
}

// TestDetailsNameWhatIsIdle: nodes without a stage, with the step that they would allow or what keeps them out, and
// plans that are not the same one on equal devices.
func TestDetailsNameWhatIsIdle(t *testing.T) {
	in := lanedOf(t, "1f1b", 3, 1<<40)
	in.Run.Train.Replicas, in.Run.Train.Stages, in.Run.Train.Micros = 0, 0, 1
	in.Members[1].Draining = true
	in.Members[2].Profile.Devices[0].MemoryFreeBytes = 1 << 10
	in.Members[2].Profile.Devices[0].Model = "card"
	d, err := MakeWithDetails(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	byNode := map[string]Unused{}
	for _, u := range d.Unused {
		byNode[u.Node] = u
	}
	leaving, small := byNode[in.Members[1].label()], byNode[in.Members[2].label()]
	if leaving.Why != "it is leaving" || small.Why != "its 1.0 KiB do not hold a single layer" || small.Model != "card" {
		t.Errorf("unused: %+v", d.Unused)
	}
	equal := lanedOf(t, "1f1b", 2, 1<<40)
	equal.Run.Train.Replicas, equal.Run.Train.Stages, equal.Run.Train.Micros = 1, 1, 1
	if d, err = MakeWithDetails(t.Context(), equal); err != nil {
		t.Fatal(err)
	}
	if len(d.Unused) != 1 || len(d.Others) > 0 {
		t.Errorf("one of two equal nodes computes alone: unused %+v, others %+v", d.Unused, d.Others)
	}
}

// TestWithoutLinksNothingIsExposed: stages of one node send nothing over links.
func TestWithoutLinksNothingIsExposed(t *testing.T) {
	in := lanedOf(t, "1f1b", 1, 1<<40)
	one := in.Members[0].Profile.Devices[0]
	for _, name := range []string{"x", "y"} {
		one.Name = name
		in.Members[0].Profile.Devices = append(in.Members[0].Profile.Devices, one)
	}
	in.Run.Train.Replicas, in.Run.Train.Stages = 1, 3
	d, err := MakeWithDetails(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if d.Unlinked != d.Passes || len(d.Devices) != 3 {
		t.Errorf("%d devices, passes of %d, without links %d", len(d.Devices), d.Passes, d.Unlinked)
	}
	for _, device := range d.Devices {
		if device.Stages[0].Sends {
			t.Errorf("%v sends to another node", device.Worker)
		}
	}
	if plan.Time(d.Passes) == plan.Time(0) {
		t.Error("the passes take no time")
	}
}
