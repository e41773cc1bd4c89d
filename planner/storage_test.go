package planner

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// unlikePrecision are two nodes, one with matrix units for BF16, on which a run leaves storage to
// the planner.
func unlikePrecision() Input {
	in := shardInput(1, 1<<30)
	in.Run.Train.Replicas, in.Run.Train.Stages, in.Run.Train.Storage = 1, 2, plan.StorageAuto
	in.HalfCosts = in.Run.Model.Costs(in.Run.Train.MicroBatch, model.StorageBF16)
	in.Members[1].Profile.Devices[0].MatMulBF16FLOPS = 8e10
	return in
}

func storages(p plan.Plan) (all string) {
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			all += " " + string(place.Peer) + "=" + place.Storage.String()
		}
	}
	return all
}

// TestStorageFollowsTheProfile: the gain that matrix units bring decides, and of one that is
// near the threshold what the plan in force has.
func TestStorageFollowsTheProfile(t *testing.T) {
	for _, tc := range []struct {
		flops int64 // in bf16, of 1e10 in f32
		now   string
		want  model.Storage
	}{
		{0, "", model.StorageF32},
		{1e10, "", model.StorageF32},
		{14e9, "", model.StorageF32},
		{15e9, "", model.StorageBF16},
		{8e10, "", model.StorageBF16},
		{14e9, "bf16", model.StorageBF16},
		{12e9, "bf16", model.StorageF32},
		{14e9, "f32", model.StorageF32},
	} {
		in := unlikePrecision()
		in.Members[1].Profile.Devices[0].MatMulBF16FLOPS = 8e10
		if tc.now != "" {
			in.Members[1].Profile.Devices[0].MatMulBF16FLOPS = map[string]int64{"bf16": 8e10, "f32": 1e10}[tc.now]
			p, _, err := Make(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			in.Previous, in.Generation = &p, 2
		}
		in.Members[1].Profile.Devices[0].MatMulBF16FLOPS = tc.flops
		p, _, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := storages(p); !strings.Contains(got, "b="+tc.want.String()) || !strings.Contains(got, "a=f32") {
			t.Errorf("%d with %q in force:%s, want %v on b and f32 on a", tc.flops, tc.now, got, tc.want)
		}
	}
}

// TestF16WhereBF16IsSlow: cards whose matrix units know no BF16 store F16, all others BF16 if they
// know that, and what is nearly the same stays as it is.
func TestF16WhereBF16IsSlow(t *testing.T) {
	for _, tc := range []struct {
		f16, bf16 int64 // of 1e10 in f32
		now, want model.Storage
	}{
		{8e10, 11e9, model.StorageF32, model.StorageF16},
		{8e10, 0, model.StorageF32, model.StorageF16},
		{8e10, 8e10, model.StorageF32, model.StorageBF16},
		{82e9, 8e10, model.StorageF32, model.StorageBF16},
		{14e9, 11e9, model.StorageF32, model.StorageF32},
		{14e9, 11e9, model.StorageF16, model.StorageF16},
		{11e10, 8e10, model.StorageF16, model.StorageF16},
		{11e10, 8e10, model.StorageBF16, model.StorageBF16},
		{12e10, 8e10, model.StorageBF16, model.StorageF16},
		{0, 8e10, model.StorageF16, model.StorageBF16},
	} {
		in := unlikePrecision()
		b := &in.Members[1].Profile.Devices[0]
		if tc.now != model.StorageF32 {
			b.MatMulBF16FLOPS, b.MatMulF16FLOPS = 1e10, 1e10
			if tc.now == model.StorageBF16 {
				b.MatMulBF16FLOPS = 8e10
			} else {
				b.MatMulF16FLOPS = 8e10
			}
			p, _, err := Make(t.Context(), in)
			if err != nil || !strings.Contains(storages(p), "b="+tc.now.String()) {
				t.Fatalf("%s, %v", storages(p), err)
			}
			in.Previous, in.Generation = &p, 2
		}
		b.MatMulBF16FLOPS, b.MatMulF16FLOPS = tc.bf16, tc.f16
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := storages(p); !strings.Contains(got, "b="+tc.want.String()) || !strings.Contains(got, "a=f32") {
			t.Errorf("f16 at %d, bf16 at %d with %v in force:%s, want %v on b and f32 on a", tc.f16, tc.bf16, tc.now, got, tc.want)
		}
		if text := about(reasons, plan.ReasonPrecision); tc.want == model.StorageF16 && !strings.HasPrefix(text, "mixed precision, f16 in ") {
			t.Errorf("precision is told as %q", text)
		}
	}
}

// TestPrecisionText counts stages.
func TestPrecisionText(t *testing.T) {
	const f32, bf16, f16 = model.StorageF32, model.StorageBF16, model.StorageF16
	for want, n := range map[string]plan.StorageCounts{
		"": {f32: 2}, "bf16 in all stages": {bf16: 1}, "f16 in all stages": {f16: 3},
		"mixed precision, bf16 in 1, f16 in 2 of 5 stages and f32 in the others": {f32: 2, bf16: 1, f16: 2},
		"mixed precision, bf16 in 1 and f16 in 1 of 2 stages":                    {bf16: 1, f16: 1},
	} {
		if got := n.Text(); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}

// TestAnUnlikePlanIsPredictedAsItIs: with the storage that it has, not the one that a new plan
// would have.
func TestAnUnlikePlanIsPredictedAsItIs(t *testing.T) {
	in := unlikePrecision()
	mixed, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if text := about(reasons, plan.ReasonPrecision); !strings.HasPrefix(text, "mixed precision, bf16 in 1 of 2 stages and f32 in the others") {
		t.Errorf("precision is told as %q", text)
	}
	in.Run.Train.Storage = plan.Storage(model.StorageF32)
	floats, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := predicted(in, floats)
	if err != nil {
		t.Fatal(err)
	}
	in.Run.Train.Storage = plan.StorageAuto
	if got, err := predicted(in, floats); err != nil || got.Step != want.Step {
		t.Errorf("f32 takes %d by a run on auto (%v), %d by one in f32", got.Step, err, want.Step)
	}
	if got, err := predicted(in, mixed); err != nil || got.Step >= want.Step {
		t.Errorf("the mixed plan takes %d (%v), f32 %d", got.Step, err, want.Step)
	}
	if d, err := ShouldReplan(t.Context(), in, floats); err != nil || !d.Replan {
		t.Errorf("a plan in f32 stays: %+v, %v", d, err)
	}
	if d, err := ShouldReplan(t.Context(), in, mixed); err != nil || d.Replan {
		t.Errorf("the best plan is replaced: %+v, %v", d, err)
	}
}

// TestProcessorsStayInFloats: with nothing measured in bf16 the rule changes no plan.
func TestProcessorsStayInFloats(t *testing.T) {
	in := unlikePrecision()
	in.Members[1].Profile.Devices[0].MatMulBF16FLOPS = 0
	auto, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Run.Train.Storage = plan.StorageRule{}
	floats, _, err := Make(t.Context(), in)
	if err != nil || string(auto.Encode()) != string(floats.Encode()) {
		t.Errorf("on auto %s, in f32 %s, %v", auto.Encode(), floats.Encode(), err)
	}
}

func TestStorageRulesSurviveTheirText(t *testing.T) {
	for _, text := range plan.StorageRules() {
		var rule, back plan.StorageRule
		if err := rule.UnmarshalText([]byte(text)); err != nil || rule.String() != text {
			t.Errorf("%q reads as %v, %v", text, rule, err)
		}
		b, err := json.Marshal(rule)
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || back != rule {
			t.Errorf("%q comes back as %v, %v", text, back, err)
		}
	}
	for _, text := range []string{"", "f64", "AUTO", "bf16 "} {
		if rule, err := plan.ParseStorage(text); !errors.Is(err, model.ErrBadConfig) {
			t.Errorf("%q reads as %v, %v", text, rule, err)
		}
	}
}

func TestStorageOfOneDeviceIsOne(t *testing.T) {
	in := unlikePrecision()
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	p.Replicas[0].Stages[1].Peer, p.Replicas[0].Stages[1].Device = p.Replicas[0].Stages[0].Peer, p.Replicas[0].Stages[0].Device
	if err := p.Validate(len(in.Costs), in.Run.Train.Sums()); !errors.Is(err, plan.ErrBadPlan) || !strings.Contains(err.Error(), "want one storage a device") {
		t.Errorf("two storages on one device: %v", err)
	}
	in.HalfCosts = in.HalfCosts[1:]
	if _, _, err := Make(t.Context(), in); !errors.Is(err, plan.ErrBadInput) {
		t.Errorf("costs of other layers in halves: %v", err)
	}
	for _, half := range []model.Storage{model.StorageBF16, model.StorageF16} {
		in.HalfCosts, in.Run.Train.Storage = nil, plan.Storage(half)
		if _, _, err := Make(t.Context(), in); !errors.Is(err, plan.ErrBadInput) {
			t.Errorf("no costs in %v: %v", half, err)
		}
	}
}
