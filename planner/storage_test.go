package planner

import (
	"encoding/json"
	"errors"
	"slices"
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

// inForce returns the input for the plan after one that was made while b multiplied at these rates.
func inForce(t *testing.T, in Input, bf16, f16 int64) Input {
	t.Helper()
	b := &in.Members[1].Profile.Devices[0]
	was := *b
	b.MatMulBF16FLOPS, b.MatMulF16FLOPS = bf16, f16
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	*b = was
	in.Previous, in.Generation = &p, 2
	return in
}

// TestStorageFollowsTheProfiles: the gain that matrix units bring decides for all stages of the first plan, which later ones
// follow whatever is measured then.
func TestStorageFollowsTheProfiles(t *testing.T) {
	const f32, bf16, f16 = model.StorageF32, model.StorageBF16, model.StorageF16
	for _, tc := range []struct {
		bf16, f16 int64 // of b, in place of 1e10 in f32; a has 1e10 in all
		want      model.Storage
	}{
		{0, 0, f32},
		{1e10, 0, f32},
		{19e9, 0, f32},
		{2e10, 0, bf16},
		{8e10, 0, bf16},
		{0, 8e10, f16},
		{11e9, 8e10, f16},
		{8e10, 8e10, bf16},
		{8e10, 11e10, bf16},
		{19e9, 19e9, f32},
	} {
		in := unlikePrecision()
		b := &in.Members[1].Profile.Devices[0]
		b.MatMulBF16FLOPS, b.MatMulF16FLOPS = tc.bf16, tc.f16
		p, reasons, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if p.Storage() != tc.want {
			t.Errorf("bf16 at %d, f16 at %d: %v, want %v", tc.bf16, tc.f16, p.Storage(), tc.want)
		}
		if text := about(reasons, plan.ReasonPrecision); tc.want != f32 && !strings.HasPrefix(text, tc.want.String()+" in all stages, of later plans too") {
			t.Errorf("precision is told as %q", text)
		}
		for _, before := range [][2]int64{{0, 0}, {8e10, 0}, {0, 8e10}} {
			next := inForce(t, in, before[0], before[1])
			p, _, err := Make(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			if p.Storage() != next.Previous.Storage() {
				t.Errorf("bf16 at %d, f16 at %d: %v after %v", tc.bf16, tc.f16, p.Storage(), next.Previous.Storage())
			}
		}
	}
}

// TestAPlanIsPredictedAsItIs: with the storage that it has, not the one that a run would begin with.
func TestAPlanIsPredictedAsItIs(t *testing.T) {
	in := unlikePrecision()
	halves, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
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
	if got, err := predicted(in, halves); err != nil || got.Step >= want.Step {
		t.Errorf("halves take %d (%v), f32 %d", got.Step, err, want.Step)
	}
	for _, p := range []plan.Plan{floats, halves} {
		if d, err := ShouldReplan(t.Context(), in, p); err != nil || d.Replan {
			t.Errorf("a plan in %v is replaced, for one in the same storage: %+v, %v", p.Storage(), d, err)
		}
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

func TestStorageOfAPlanIsOne(t *testing.T) {
	in := unlikePrecision()
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	p.Replicas[0].Stages[1].Storage = model.StorageF16
	if err := p.OneStorage(); !errors.Is(err, plan.ErrBadPlan) || !strings.Contains(err.Error(), "want one storage") {
		t.Errorf("two storages: %v", err)
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

// TestDeathsChangeNoRounding: whoever dies, and whatever links and devices are measured at by then, the storage and the codec that
// the run began with stay.
func TestDeathsChangeNoRounding(t *testing.T) {
	for _, tc := range []struct {
		bytesPerS int64
		codec     string
	}{{12e9, "f32"}, {1e6, "int8"}} {
		in := lossy(tc.bytesPerS)
		first, _, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if first.Codec != tc.codec || first.Storage() != model.StorageBF16 {
			t.Fatalf("at %d bytes a second: %q, %v", tc.bytesPerS, first.Codec, first.Storage())
		}
		for dead := range in.Members {
			next := lossy([]int64{1e6, 12e9, 125e6}[dead])
			next.Members = slices.Delete(next.Members, dead, dead+1)
			next.Members[0].Profile.Devices[0].MatMulBF16FLOPS = 0
			next.Previous, next.Generation = &first, 2
			for range 2 { // the second one comes after a plan without a boundary, perhaps
				p, _, err := Make(t.Context(), next)
				if err != nil {
					t.Fatal(err)
				}
				codecs, err := p.Replicas[0].Codecs()
				if err != nil || p.Codec != tc.codec || p.Storage() != model.StorageBF16 || slices.ContainsFunc(codecs, func(c plan.Codec) bool { return c.String() != tc.codec }) {
					t.Errorf("without %s: codec %q in %v, storage %v, %v", in.Members[dead].Peer, p.Codec, codecs, p.Storage(), err)
				}
				next.Run.Train.Stages = 1
				next.Previous, next.Generation = &p, next.Generation+1
			}
		}
	}
}

// lossy are three nodes with like links that leave storage and codec to the planner.
func lossy(bytesPerS int64) Input {
	in := shardInput(1, 1<<30)
	in.Run.Train.Replicas, in.Run.Train.Stages, in.Run.Train.Storage = 1, 2, plan.StorageAuto
	in.Run.Train.Codec, _ = plan.ParseCodecRule("auto")
	in.HalfCosts = in.Run.Model.Costs(in.Run.Train.MicroBatch, model.StorageBF16)
	third := in.Members[0]
	third.Peer = "c"
	in.Members = append(in.Members, third)
	for i := range in.Members {
		m := &in.Members[i]
		m.Profile.Devices = slices.Clone(m.Profile.Devices)
		m.Profile.Devices[0].MatMulBF16FLOPS = 8e10
		m.Profile.Links = nil
		for _, o := range in.Members {
			if o.Peer != m.Peer {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: o.Peer, RTTNanos: 1e6, BytesPerS: bytesPerS})
			}
		}
	}
	return in
}

// TestAPlanAfreshStoresAsTheRunDoes: what else a run might do is planned in what it has settled on, whatever devices it has by now.
func TestAPlanAfreshStoresAsTheRunDoes(t *testing.T) {
	for _, tc := range []struct {
		bf16 int64
		want model.Storage
	}{{8e10, model.StorageBF16}, {0, model.StorageF32}} {
		in := inForce(t, unlikePrecision(), tc.bf16, 0)
		afresh := in.Afresh()
		if in.Previous == nil || afresh.Previous != nil || afresh.Run.Train.Storage != plan.Storage(tc.want) {
			t.Errorf("%+v in a run that stores %v", afresh.Run.Train.Storage, tc.want)
		}
	}
}
