package cost

import (
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestSizesOfOneModelAreNotAnothers: models of the same devices keep what stages take, and with
// optimizer state in parts a stage takes less, whichever model was asked before.
func TestSizesOfOneModelAreNotAnothers(t *testing.T) {
	costs := []model.LayerCost{{ParamBytes: 4 << 20, SavedBytes: 1 << 20, BoundaryBytes: 1 << 10}, {ParamBytes: 4 << 20, SavedBytes: 1 << 20, BoundaryBytes: 1 << 10}}
	whole := NewModel(NewMemory(Training{Costs: costs}), nil)
	device, err := whole.Memory.NewDevice(plan.DeviceProfile{Name: "cpu", MatMulFLOPS: 1e9, MemoryBytesPerS: 1e9, MemoryFreeBytes: 1 << 30}, model.StorageF32)
	if err != nil {
		t.Fatal(err)
	}
	whole.Devices = []*Device{device}
	parts := whole.With(Parts{Replicas: 2, Layers: whole.Memory.All()}, nil)
	stage := Stage{First: 0, End: 1}
	stage.Use.Slots = 1
	before, after := whole.Bytes(stage), parts.Bytes(stage)
	if moments := int64(plan.MomentVectors * 4 << 20); after >= before || before-after < moments/2-1<<10 {
		t.Errorf("a stage takes %d bytes whole and %d with half of its %d bytes of optimizer state", before, after, moments)
	}
}
