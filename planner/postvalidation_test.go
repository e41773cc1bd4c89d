package planner

import (
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// fourDevices is a run on four equal devices of so much memory, whose lines have a latency that commits show.
func fourDevices(t *testing.T, memoryBytes int64) Input {
	t.Helper()
	m, err := model.Preset("gpt2-124m")
	if err != nil {
		t.Fatal(err)
	}
	m.UntiedHead = true
	in := InputOf(plan.RunSpec{Run: "ahead", Model: m, Train: plan.TrainSpec{Micros: 8, MicroBatch: 1, Replicas: 1, Stages: 4, PostValidation: true}})
	peers := []plan.PeerID{"a", "b", "c", "d"}
	for _, p := range peers {
		member := Member{Peer: p, Profile: plan.Profile{Devices: []plan.DeviceProfile{{
			Name: "gpu", MatMulFLOPS: 4e12, AttentionFLOPS: 2e12, MemoryBytesPerS: 4e11, MemoryFreeBytes: memoryBytes,
		}}}}
		for _, q := range peers {
			if q != p {
				member.Profile.Links = append(member.Profile.Links, plan.LinkProfile{Peer: q, BytesPerS: 1_250_000_000, RTTNanos: 5e6})
			}
		}
		in.Members = append(in.Members, member)
	}
	return in
}

// TestStepsAreAppliedAheadWhereThatPays: the plan says so, its reasons too, and the prediction is the shorter step; a run without it, and
// devices without the memory, wait.
func TestStepsAreAppliedAheadWhereThatPays(t *testing.T) {
	in := fourDevices(t, 8<<30)
	d, err := MakeWithDetails(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, in, d.Plan, d.Reasons)
	said := slices.ContainsFunc(d.Reasons, func(r plan.Reason) bool { return r.Kind == plan.ReasonPostValidation })
	if !d.Plan.PostValidation || !said {
		t.Fatalf("%s, said %t", d.Plan.Encode(), said)
	}
	if got, err := Expect(in, d.Plan, Measured{}); err != nil || got.StepNanos != int64(d.Step) {
		t.Errorf("predicted %v (%v), made with %v", got.StepNanos, err, d.Step)
	}
	need := int64(0)
	for _, device := range d.Devices {
		need = max(need, device.NeedBytes)
	}
	off := in
	off.Run.Train.PostValidation = false
	waits, err := MakeWithDetails(t.Context(), off)
	if err != nil || waits.Plan.PostValidation || waits.Step*99 < d.Step*100 {
		t.Errorf("waits %v, ahead %v (%v)", waits.Step, d.Step, err)
	}
	tight := fourDevices(t, need-1) // less than what the plan takes
	again, err := MakeWithDetails(t.Context(), tight)
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range again.Devices {
		if device.NeedBytes > device.TotalBytes {
			t.Errorf("%s needs %d bytes of %d", device.Node, device.NeedBytes, device.TotalBytes)
		}
	}
	if again.Plan.PostValidation && again.Plan.Schedule == d.Plan.Schedule && slices.Equal(again.Plan.Replicas[0].Stages, d.Plan.Replicas[0].Stages) {
		t.Error("the same plan in less memory")
	}
	need = 0
	for _, device := range waits.Devices {
		need = max(need, device.NeedBytes)
	}
	least := fourDevices(t, need+1<<20)
	if p, _, err := Make(t.Context(), least); err != nil || p.PostValidation {
		t.Errorf("%s in hardly any memory (%v)", p.Encode(), err)
	}
}
