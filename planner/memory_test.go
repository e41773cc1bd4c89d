package planner

import (
	"fmt"
	"slices"
	"testing"

	"pnode/pipeline/model"
)

// unitOf is a cluster of one device that has a run's storage.
func unitOf(t *testing.T, run RunSpec) *cluster {
	t.Helper()
	in := Input{Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32), HalfCosts: run.Model.Costs(run.Train.MicroBatch, model.StorageBF16)}
	in.Members = []Member{{Peer: "a", Profile: Profile{Devices: []DeviceProfile{{Name: "cpu", MatMulFLOPS: 1, MemoryBytesPerS: 1, MemoryFreeBytes: 1}}}}}
	c, err := newCluster(in, in.storings()[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// checkNeed compares a stage's estimate with what a stack for it allocates.
func checkNeed(t *testing.T, run RunSpec, level model.Recompute, first, end, slots, shares int) {
	t.Helper()
	for _, away := range []bool{false, true} {
		checkNeedOf(t, run, level, first, end, slots, shares, away)
	}
}

// checkNeedOf is checkNeed with the optimizer state on the device or away.
func checkNeedOf(t *testing.T, run RunSpec, level model.Recompute, first, end, slots, shares int, away bool) {
	t.Helper()
	run.Train.Recompute = Recompute(level)
	c := unitOf(t, run)
	if shares > 1 {
		c = c.sharing(shares)
	}
	k := c.ledger(0)
	parts := slices.Repeat([]model.Share{{Index: shares - 1, Count: shares}}, end-first)
	m, err := model.StackConfig{
		Model: run.Model, First: first, End: end, MicroBatch: run.Train.MicroBatch, Slots: slots, Moments: 2, Shares: parts,
		DocumentMask: run.Train.DocumentMask, Recompute: level.Uniform(end - first), Storage: k.storage, Offload: away,
	}.Memory()
	if err != nil {
		t.Fatal(err)
	}
	got, want := c.fixedIn(0, first, end, away)+int64(slots)*(k.saved[end]-k.saved[first]+c.slotBytes)+k.passBytes, m.Total()
	most := want + want/10 + int64(slots)*c.slotBytes // a whole model has no boundaries
	if first > 0 && end < c.layers() {                // no logits there, which passBytes has room for
		most += k.passBytes
	}
	if got < want || got > most {
		t.Errorf("layers [%d,%d), %d in flight, state away %t: planned %d bytes, a stack allocates %d: %+v", first, end, slots, away, got, want, m)
	}
	if host := c.hostIn(first, end); away && (host < m.Host || host > m.Host+alignedMoments*int64(end-first)*int64(shares)) {
		t.Errorf("layers [%d,%d): planned %d bytes of host memory, a stack allocates %d", first, end, host, m.Host)
	}
}

// TestPlannedMemoryCoversWhatIsAllocated: for every way to store and to recompute, alone and as
// a stage at either end or in the middle.
func TestPlannedMemoryCoversWhatIsAllocated(t *testing.T) {
	for _, preset := range []string{"small-10m", "gpt2-124m", "llama-160m"} {
		m, err := model.Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		adapted := m
		adapted.LoRA = model.LoRA{Rank: 8, Alpha: 16, Targets: map[bool]string{true: "q_proj,v_proj", false: "c_attn"}[m.Positions == model.RoPE]}
		for _, c := range []model.Config{m, adapted} {
			for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16, model.StorageF16} {
				for _, level := range []model.Recompute{model.RecomputeNothing, model.RecomputeOutputs, model.RecomputeBlock} {
					for _, mask := range []bool{false, true} {
						run := RunSpec{Model: c, Train: TrainSpec{MicroBatch: 2, Micros: 8, Storage: Storage(storage), DocumentMask: mask}}
						t.Run(fmt.Sprintf("%s rank %d %v %v %v", preset, c.LoRA.Rank, storage, level, mask), func(t *testing.T) {
							n := c.Layers()
							for _, layers := range [][2]int{{0, n}, {0, n / 2}, {n / 2, n}, {2, n - 2}} {
								for _, slots := range []int{1, 4} {
									checkNeed(t, run, level, layers[0], layers[1], slots, 1)
									checkNeed(t, run, level, layers[0], layers[1], slots, 3)
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
	for _, preset := range []string{"small-10m", "gpt2-124m", "llama-160m"} {
		for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16, model.StorageF16} {
			m, err := model.Preset(preset)
			if err != nil {
				t.Fatal(err)
			}
			run := RunSpec{Model: m, Train: TrainSpec{MicroBatch: 2, Micros: 8, Storage: Storage(storage)}}
			c := unitOf(t, run)
			for _, level := range []model.Recompute{model.RecomputeOutputs, model.RecomputeBlock} {
				for ahead := range 5 {
					checkAhead(t, c, level, ahead)
				}
			}
		}
	}
}

// checkAhead has four layers from the second on under a level, so many of them ahead.
func checkAhead(t *testing.T, c *cluster, level model.Recompute, ahead int) {
	t.Helper()
	const first, end, slots = 1, 5, 3
	run, k := c.in.Run, c.ledger(0)
	m, err := model.StackConfig{
		Model: run.Model, First: first, End: end, MicroBatch: run.Train.MicroBatch, Slots: slots, Moments: 2,
		Recompute: level.Uniform(end - first), Storage: k.storage, Ahead: ahead,
	}.Memory()
	if err != nil {
		t.Fatal(err)
	}
	got := c.fixedIn(0, first, end, false) + k.passBytes + slots*c.slotBytes
	pass := int64(0)
	for l := first; l < end; l++ {
		got += slots * k.costs[l].Lean[level].SavedBytes
		if l >= end-ahead {
			got += c.leanOf(0, l, level).AheadBytes
			continue
		}
		for _, lean := range k.lean {
			if lean.level == level {
				pass = max(pass, lean.pass[l])
			}
		}
	}
	if got += pass; got < m.Total() {
		t.Errorf("%v of which %d layers ahead: planned %d bytes, a stack allocates %d: %+v", level, ahead, got, m.Total(), m)
	}
}
