package cost

import (
	"fmt"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

const microBatch = 2

// training is a model with a storage, and with or without a mask of documents.
type training struct {
	model       model.Config
	costs, half []model.LayerCost
	storage     model.Storage
	mask        bool
}

// train returns a model with its costs, which take longest to get.
func train(m model.Config) training {
	return training{model: m, costs: m.Costs(microBatch, model.StorageF32), half: m.Costs(microBatch, model.StorageBF16)}
}

// open returns the memory of a device with the storage.
func (tr training) open(t *testing.T, m Training) *DeviceMemory {
	t.Helper()
	m.Costs, m.HalfCosts = tr.costs, tr.half
	m.Tied, m.TiedGrad = tr.model.TiedLen(), tr.model.TiedGradLen()
	if tr.mask {
		m.MaskBytes = 4 * microBatch * int64(tr.model.Context)
	}
	l, err := NewMemory(m).Open(tr.storage)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// checkNeed compares a stage's estimate with what a stack for it allocates.
func checkNeed(t *testing.T, tr training, level model.Recompute, first, end, slots, shares int) {
	t.Helper()
	for _, away := range []bool{false, true} {
		checkNeedOf(t, tr, level, first, end, slots, shares, away)
	}
}

// checkNeedOf is checkNeed with the optimizer state on the device or away.
func checkNeedOf(t *testing.T, tr training, level model.Recompute, first, end, slots, shares int, away bool) {
	t.Helper()
	k := tr.open(t, Training{Level: level, Fixed: true})
	if shares > 1 {
		k = k.memory.InParts(Parts{Replicas: shares, Layers: k.memory.All()}).Device(tr.storage)
	}
	b := k.memory
	parts := slices.Repeat([]model.Share{{Index: shares - 1, Count: shares}}, end-first)
	m, err := model.StackConfig{
		Model: tr.model, First: first, End: end, MicroBatch: microBatch, Slots: slots, Moments: 2, Shares: parts,
		DocumentMask: tr.mask, Recompute: level.Uniform(end - first), Storage: k.storage, Offload: away,
	}.Memory()
	if err != nil {
		t.Fatal(err)
	}
	got, want := k.Fixed(first, end, away)+int64(slots)*(k.Saved(first, end)+b.Slot())+k.Pass(), m.Total()
	most := want + want/10 + int64(slots)*b.Slot() // a whole model has no boundaries
	if first > 0 && end < b.Layers() {             // no logits there, which Pass has room for
		most += k.Pass()
	}
	if got < want || got > most {
		t.Errorf("layers [%d,%d), %d in flight, state away %t: planned %d bytes, a stack allocates %d: %+v", first, end, slots, away, got, want, m)
	}
	if host := b.Host(first, end); away && (host < m.Host || host > m.Host+alignedMoments*int64(end-first)*int64(shares)) {
		t.Errorf("layers [%d,%d): planned %d bytes of host memory, a stack allocates %d", first, end, host, m.Host)
	}
}

// presets returns models of each family, the large ones only where there is time.
func presets() []string {
	if testing.Short() {
		return []string{"nano"}
	}
	return []string{"small-10m", "gpt2-124m", "llama-160m"}
}

// TestPlannedMemoryCoversWhatIsAllocated: for every way to store and to recompute, alone and as
// a stage at either end or in the middle.
func TestPlannedMemoryCoversWhatIsAllocated(t *testing.T) {
	for _, preset := range presets() {
		m, err := model.Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		adapted := m
		adapted.LoRA = model.LoRA{Rank: 8, Alpha: 16, Targets: map[bool]string{true: "q_proj,v_proj", false: "c_attn"}[m.Positions == model.RoPE]}
		for _, c := range []model.Config{m, adapted} {
			of := train(c)
			for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16, model.StorageF16} {
				for _, level := range []model.Recompute{model.RecomputeNothing, model.RecomputeOutputs, model.RecomputeBlock} {
					for _, mask := range []bool{false, true} {
						tr := of
						tr.storage, tr.mask = storage, mask
						t.Run(fmt.Sprintf("%s rank %d %v %v %v", preset, c.LoRA.Rank, storage, level, mask), func(t *testing.T) {
							n := c.Layers()
							for _, layers := range [][2]int{{0, n}, {0, n / 2}, {n / 2, n}, {2, n - 2}} {
								for _, slots := range []int{1, 4} {
									checkNeed(t, tr, level, layers[0], layers[1], slots, 1)
									checkNeed(t, tr, level, layers[0], layers[1], slots, 3)
								}
							}
						})
					}
				}
			}
		}
	}
}

// TestRoomForWhatIsRestoredAhead: a stage of which all blocks are restored ahead of a gradient
// takes what its passes take that recompute nothing, and the room for what is restored.
func TestRoomForWhatIsRestoredAhead(t *testing.T) {
	for _, preset := range presets() {
		m, err := model.Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		of := train(m)
		for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16, model.StorageF16} {
			tr := of
			tr.storage = storage
			for _, level := range []model.Recompute{model.RecomputeOutputs, model.RecomputeBlock} {
				for ahead := range 5 {
					checkAhead(t, tr, level, ahead)
				}
			}
		}
	}
}

// checkAhead has four layers from the second on under a level, so many of them ahead.
func checkAhead(t *testing.T, tr training, level model.Recompute, ahead int) {
	t.Helper()
	const first, end, slots = 1, 5, 3
	k := tr.open(t, Training{})
	m, err := model.StackConfig{
		Model: tr.model, First: first, End: end, MicroBatch: microBatch, Slots: slots, Moments: 2,
		Recompute: level.Uniform(end - first), Storage: k.storage, Ahead: ahead,
	}.Memory()
	if err != nil {
		t.Fatal(err)
	}
	got := k.Fixed(first, end, false) + k.Pass() + slots*k.memory.Slot()
	pass := int64(0)
	for l := first; l < end; l++ {
		got += slots * k.costs[l].Lean[level].SavedBytes
		if l >= end-ahead {
			got += k.Again(&Speed{MatMulFLOPS: 1, MemoryBytesPerS: 1}, l, level).AheadBytes
			continue
		}
		for _, lean := range k.levels {
			if lean.Level == level {
				pass = max(pass, lean.pass[l])
			}
		}
	}
	if got += pass; got < m.Total() {
		t.Errorf("%v of which %d layers ahead: planned %d bytes, a stack allocates %d: %+v", level, ahead, got, m.Total(), m)
	}
}

// TestUnequalSharesOfUpdates: of an update that replicas share in unequal parts the largest one counts.
func TestUnequalSharesOfUpdates(t *testing.T) {
	costs := []model.LayerCost{{ParamBytes: 3 << 20, OneMomentBytes: 3 << 20}, {ParamBytes: 3 << 20, OneMomentBytes: 3 << 20}}
	whole := Training{Costs: costs}
	parts := Training{Costs: costs, ShareBytes: func(_, _ int) int64 { return 2 << 20 }}
	in := Parts{Replicas: 2, Layers: plan.LayerRanges{{First: 0, End: 2}}}
	const took = 3 << 30
	if got := NewMemory(whole).InParts(in).shared(took, 0, 2); got != took/2 {
		t.Errorf("equal parts take %d of %d ns, want half", got, took)
	}
	if got := NewMemory(parts).InParts(in).shared(took, 0, 2); got < 2<<30 || got > 2<<30+took/500 {
		t.Errorf("unequal parts take %d of %d ns, want two thirds", got, took)
	}
}
