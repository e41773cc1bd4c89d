package planner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestPresets plans the real models on three like nodes.
func TestPresets(t *testing.T) {
	for _, name := range model.PresetNames() {
		cfg, err := model.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, train := range []plan.TrainSpec{{Micros: 8, MicroBatch: 2}, {Micros: 8, MicroBatch: 2, Replicas: 1, Stages: 3}, {Micros: 8, MicroBatch: 2, Replicas: 2}} {
			in := Input{Generation: 1, Run: plan.RunSpec{Run: "preset", Model: cfg, Train: train}, Costs: cfg.Costs(train.MicroBatch, model.StorageF32)}
			for _, peer := range []plan.PeerID{"a", "b", "c"} {
				in.Members = append(in.Members, Member{Peer: peer, Profile: plan.Profile{Devices: []plan.DeviceProfile{
					{Name: "cpu", MatMulFLOPS: 5e10, AttentionFLOPS: 1e10, MemoryBytesPerS: 1e10, MemoryFreeBytes: 64 << 30},
				}}})
			}
			p, reasons, err := Make(t.Context(), in)
			if err != nil {
				t.Fatalf("%s %+v: %v", name, train, err)
			}
			checkPlan(t, in, p, reasons)
			t.Log(name, reasons.Lines()[0])
		}
	}
}

// big is n mixed nodes and a model of that many layers.
func big(n, layers int) Input {
	rng := rand.New(rand.NewPCG(15, 16))
	in := Input{Generation: 1, Run: plan.RunSpec{Run: "big", Train: plan.TrainSpec{Micros: 256}, Model: model.Config{Vocab: 50257, Channels: 4096}}}
	for range layers {
		in.Costs = append(in.Costs, model.LayerCost{
			ForwardFLOPs: 4e11, InputFLOPs: 4e11, WeightFLOPs: 4e11, ParamBytes: 8e8, SavedBytes: 2e8, BoundaryBytes: 8 << 20,
		})
	}
	for i := range n {
		m := Member{Peer: plan.PeerID(fmt.Sprintf("12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6v%07d", i))}
		m.Profile.Devices = []plan.DeviceProfile{{Name: "cuda:0", MatMulFLOPS: 5e12 + rng.Int64N(3e13), MemoryBytesPerS: 4e11, MemoryFreeBytes: 6<<30 + rng.Int64N(60<<30), CopyBytesPerS: 1e10}}
		for range 8 {
			m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprintf("12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6v%07d", rng.IntN(n))), BytesPerS: 1e7 + rng.Int64N(1e9), RTTNanos: rng.Int64N(6e7)})
		}
		last := map[plan.PeerID]plan.LinkProfile{} // of a peer that was drawn twice the last link counts
		for _, l := range m.Profile.Links {
			last[l.Peer] = l
		}
		delete(last, m.Peer)
		m.Profile.Links = slices.Collect(maps.Values(last))
		in.Members = append(in.Members, m)
	}
	return in
}

func TestBigPlan(t *testing.T) {
	in := big(128, 96)
	p, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, in, p, reasons)
	for _, line := range reasons.Lines() {
		t.Log(line)
	}
}

func BenchmarkMake(b *testing.B) {
	for _, size := range []struct{ nodes, layers int }{{3, 8}, {16, 32}, {128, 96}, {1000, 96}} {
		b.Run(fmt.Sprintf("%dx%d", size.nodes, size.layers), func(b *testing.B) {
			in := big(size.nodes, size.layers)
			for i := range in.Members {
				if size.nodes < 128 {
					in.Members[i].Profile.Devices[0].MemoryFreeBytes *= 16
				}
			}
			for b.Loop() {
				if _, _, err := Make(b.Context(), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// expiring is a context that ends after it has been asked so many times whether it has.
type expiring struct {
	context.Context
	left int
}

func (c *expiring) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	return context.Canceled
}

// TestASearchEndsWithItsContext: wherever its context ends, a search returns that and no plan.
func TestASearchEndsWithItsContext(t *testing.T) {
	in := big(exhaustUpTo+1, 8)
	want, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for left := 0; ; left = 3*left + 1 {
		got, reasons, err := Make(&expiring{context.Background(), left}, in)
		if err == nil {
			if left < 20 || !bytes.Equal(got.Encode(), want.Encode()) {
				t.Errorf("a search that asked its context %d times has another plan, or asks seldom", left)
			}
			break
		}
		if !errors.Is(err, context.Canceled) || reasons != nil {
			t.Fatalf("after %d questions: %v", left, err)
		}
		if _, err := ShouldReplan(&expiring{context.Background(), left}, in, want); left < 20 && !errors.Is(err, context.Canceled) {
			t.Errorf("a comparison after %d questions: %v", left, err)
		}
	}
}
