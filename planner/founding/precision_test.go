package founding

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

const f32, bf16, f16 = model.StorageF32, model.StorageBF16, model.StorageF16

// rated are a device's rates of products in GFLOP/s.
func rated(kind string, full, halves, f16s int64) plan.DeviceProfile {
	return plan.DeviceProfile{Kind: kind, MatMulFLOPS: full * 1e9, MatMulBF16FLOPS: halves * 1e9, MatMulF16FLOPS: f16s * 1e9}
}

// TestProcessorsComputeInHalvesWhereAllCan: one processor without instructions for bf16 keeps the others from it, cards decide
// by what they gain, and a device that nobody measured in halves counts with its rate in float32.
func TestProcessorsComputeInHalvesWhereAllCan(t *testing.T) {
	const native, wide = "amd64/avx512bf16", "amd64/avx2"
	fast, slow, card := rated(native, 100, 195, 0), rated(wide, 90, 0, 0), rated("", 1000, 4000, 4000)
	for name, c := range map[string]struct {
		devices []plan.DeviceProfile
		want    Precision
	}{
		"none measured":                {[]plan.DeviceProfile{slow, slow}, Precision{[]model.Storage{f32}, f32, 0, 0, -1}},
		"nobody":                       {nil, Precision{[]model.Storage{f32}, f32, 0, 0, -1}},
		"one that can":                 {[]plan.DeviceProfile{fast}, Precision{[]model.Storage{bf16, f32}, bf16, 1950, 1, -1}},
		"two that can":                 {[]plan.DeviceProfile{fast, rated("arm64/neonbf16", 50, 75, 0)}, Precision{[]model.Storage{bf16, f32}, bf16, 1800, 2, -1}},
		"one that gains little":        {[]plan.DeviceProfile{rated(native, 100, 149, 0)}, Precision{[]model.Storage{f32, bf16}, bf16, 1490, 1, -1}},
		"together little":              {[]plan.DeviceProfile{fast, rated(native, 100, 104, 0)}, Precision{[]model.Storage{f32, bf16}, bf16, 1495, 2, -1}},
		"one that cannot":              {[]plan.DeviceProfile{fast, fast, slow, fast}, Precision{[]model.Storage{f32, bf16}, bf16, 1000, 0, 2}},
		"one that cannot, and is slow": {[]plan.DeviceProfile{fast, rated(wide, 5, 0, 0)}, Precision{[]model.Storage{bf16, f32}, bf16, 1905, 1, -1}},
		"little gain without it, too":  {[]plan.DeviceProfile{rated(native, 100, 140, 0), slow}, Precision{[]model.Storage{f32, bf16}, bf16, 1211, 1, -1}},
		"a card and who cannot":        {[]plan.DeviceProfile{slow, card}, Precision{[]model.Storage{bf16, f32}, bf16, 3752, 1, -1}},
		"a card and both":              {[]plan.DeviceProfile{fast, slow, card}, Precision{[]model.Storage{bf16, f32}, bf16, 3521, 1, 1}},
		"a small card and both":        {[]plan.DeviceProfile{fast, slow, rated("", 10, 40, 0)}, Precision{[]model.Storage{f32, bf16}, bf16, 1150, 1, 1}},
		"a card and who can":           {[]plan.DeviceProfile{fast, card}, Precision{[]model.Storage{bf16, f32}, bf16, 3814, 2, -1}},
		"an old card":                  {[]plan.DeviceProfile{rated("", 1000, 0, 4000), slow}, Precision{[]model.Storage{f16, f32}, f16, 3752, 1, -1}},
		"f16 that is worth its range":  {[]plan.DeviceProfile{rated("", 1000, 1000, 1500)}, Precision{[]model.Storage{f16, f32}, f16, 1500, 1, -1}},
		"f16 that is not":              {[]plan.DeviceProfile{rated("", 1000, 2000, 2900)}, Precision{[]model.Storage{bf16, f32}, bf16, 2000, 1, -1}},
	} {
		got := PrecisionOf(plan.StorageAuto, c.devices, true)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		for _, s := range []model.Storage{f32, bf16, f16} {
			if got := PrecisionOf(plan.Storage(s), c.devices, true).Storages; !slices.Equal(got, []model.Storage{s}) {
				t.Errorf("%s: %v where the run asks for %v", name, got, s)
			}
		}
		if got := PrecisionOf(plan.StorageAuto, c.devices, false).Storages; !slices.Equal(got, []model.Storage{f32}) {
			t.Errorf("%s: %v of a model without costs in halves", name, got)
		}
	}
}

// TestRatesOfAllDevicesAddUp: as many of the fastest as a run can have weigh as one does, and rates of nothing choose nothing.
func TestRatesOfAllDevicesAddUp(t *testing.T) {
	const most = 1000 * plan.MaxDevices
	many := slices.Repeat([]plan.DeviceProfile{{MatMulFLOPS: plan.MaxFLOPS / 2, MatMulBF16FLOPS: math.MaxInt64}}, most)
	if got := PrecisionOf(plan.StorageAuto, many, true); got.Gain != 2000 || got.Measured != most || got.Storages[0] != bf16 {
		t.Errorf("gain %d of %d devices, %v", got.Gain, got.Measured, got.Storages)
	}
	for _, d := range []plan.DeviceProfile{{MatMulBF16FLOPS: 1}, {MatMulFLOPS: 1, MatMulBF16FLOPS: 1}, {MatMulBF16FLOPS: math.MaxInt64}} {
		if got := PrecisionOf(plan.StorageAuto, []plan.DeviceProfile{d}, true); got.Storages[0] != f32 {
			t.Errorf("%+v: %+v", d, got)
		}
	}
}
