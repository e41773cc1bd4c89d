package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// portioned is a device with a largest size of buffers.
type portioned struct {
	kernels.Device
	most    int64
	buffers *int
}

func (d portioned) MaxBufferBytes() int64 { return d.most }

func (d portioned) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	*d.buffers++
	if bytes := int64(count) * int64(dtype.SizeBytes()); bytes > d.most {
		return nil, fmt.Errorf("%w: a buffer of %d bytes, at most %d", kernels.ErrOutOfMemory, bytes, d.most)
	}
	return d.Device.Alloc(dtype, count)
}

// TestStagesOfSeveralBuffersGiveTheSameBits: a stage may take more than its device gives in one
// buffer, as long as no tensor does.
func TestStagesOfSeveralBuffersGiveTheSameBits(t *testing.T) {
	t.Parallel()
	runs := families()
	runs["gpt2"] = testRun()
	halves := runs["llama"]
	halves.Train.Storage = plan.Storage(model.StorageBF16)
	runs["llama in bf16"] = halves
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run, longest := runs[name], 0
		for l := range run.Model.Layers() {
			longest = max(longest, run.Model.LayerLen(l))
		}
		most := int64(4*longest + 4*run.Model.TiedLen() + 1<<10)
		for k, text := range []string{"1f1b", "1f1b", "zb-h1"} {
			if !meets(i, k, 3) {
				continue
			}
			plan := scheduled(t, run, text, k+1)
			var few, many int
			of := func(most int64, buffers *int) func(kernels.Device) kernels.Device {
				return func(d kernels.Device) kernels.Device { return portioned{d, most, buffers} }
			}
			want := trainAs(t, run, plan, &memoryKeeper{}, of(1<<40, &few))
			equal(t, name+", "+text, trainAs(t, run, plan, &memoryKeeper{}, of(most, &many)), want)
			if many <= few {
				t.Errorf("%s, %s: %d buffers, %d without a largest size", name, text, many, few)
			}
		}
	}
}
