package checkpoint

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// threeSteps has steps 1 to 3 of two layers each; layer 0 is shared, layer 1 of two chunks
// is each step's own. Layer 1 is another node's to hold.
func threeSteps(t *testing.T) (*Store, map[plan.Step]Manifest) {
	t.Helper()
	s := openStore(t, t.TempDir(), Options{Self: "me"})
	shared := put(t, s, []byte("shared"))
	all := map[plan.Step]Manifest{}
	for step := plan.Step(1); step <= 3; step++ {
		first, second := put(t, s, noise(uint64(step), ChunkBytes)), put(t, s, noise(uint64(step), 9))
		all[step] = Manifest{Run: "r", Step: step, Generation: 1, Layers: []LayerState{
			{Layer: 0, SizeBytes: 6, Chunks: []plan.Hash{shared}},
			{Layer: 4, SizeBytes: ChunkBytes + 9, Chunks: []plan.Hash{first, second}, Holders: []plan.PeerID{"you"}},
		}}
		if err := s.Commit(all[step]); err != nil {
			t.Fatal(err)
		}
	}
	return s, all
}

// TestVerifyStepTellsDamages: what is missing or wrong of a step, until it is there again.
func TestVerifyStepTellsDamages(t *testing.T) {
	s, all := threeSteps(t)
	expect := func(when string, step plan.Step, want error, place string) {
		t.Helper()
		damages, err := s.VerifyStep(t.Context(), step, nil)
		switch {
		case err != nil || len(damages) > 1 || (want == nil) != (len(damages) == 0):
			t.Errorf("%s: step %d has %v, %v", when, step, damages, err)
		case want != nil && (!errors.Is(damages[0], want) || !strings.HasPrefix(damages[0].Error(), place)):
			t.Errorf("%s: step %d: %v, want %v at %s", when, step, damages[0], want, place)
		}
		if len(s.guard.held) != 0 {
			t.Errorf("%s: still held: %v", when, s.guard.held)
		}
	}
	if err := os.Remove(s.chunks.path(all[3].Layers[1].Chunks[1])); err != nil {
		t.Fatal(err)
	}
	flip(t, s.chunks.path(all[2].Layers[1].Chunks[0]), ChunkBytes-1)
	expect("whole", 1, nil, "")
	expect("missing", 3, ErrNotFound, "step 3 layer 4 chunk 1 of 2: ")
	expect("damaged", 2, ErrCorrupt, "step 2 layer 4 chunk 0 of 2: ")
	expect("the damaged one in quarantine", 2, ErrNotFound, "step 2 layer 4 chunk 0 of 2: ")
	if err := s.PutNamed(all[2].Layers[1].Chunks[0], noise(2, ChunkBytes)); err != nil {
		t.Fatal(err)
	}
	expect("healed", 2, nil, "")
}

func TestVerifyStep(t *testing.T) {
	s, all := threeSteps(t)
	var told []Progress
	found, err := s.VerifyStep(t.Context(), 2, func(p Progress) { told = append(told, p) })
	if err != nil || len(found) != 0 {
		t.Errorf("whole: %v, %v", found, err)
	}
	if want := (Progress{Chunks: 3, TotalChunks: 3, Bytes: ChunkBytes + 15}); len(told) != 3 || told[2] != want {
		t.Errorf("progress %+v, the last should be %+v", told, want)
	}
	// A whole chunk of another size than the manifest says is no part of this layer.
	wrong := all[2]
	wrong.Layers = slices.Clone(wrong.Layers)
	wrong.Layers[0].SizeBytes++
	if err := s.catalog.write([]Op{{Key: manifestKey(2), Value: wrong.Encode()}}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.VerifyStep(t.Context(), 2, nil); err != nil || len(found) != 1 || !errors.Is(found[0], ErrCorrupt) || found[0].Layer != 0 {
		t.Errorf("another size: %v, %v", found, err)
	}
	if _, err := s.VerifyStep(t.Context(), 7, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("absent step: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.VerifyStep(ctx, 1, func(Progress) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestVerifyStepWithADamagedManifest: there is nothing to hold the chunks against.
func TestVerifyStepWithADamagedManifest(t *testing.T) {
	s, _ := threeSteps(t)
	if err := s.catalog.write([]Op{{Key: manifestKey(3), Value: []byte("{")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VerifyStep(t.Context(), 3, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("verify: %v", err)
	}
}
