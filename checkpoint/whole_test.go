package checkpoint

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pnode/planner"
)

// threeSteps has steps 1 to 3 of two layers each; layer 0 is shared, layer 1 of two chunks
// is each step's own. Layer 1 is another node's to hold.
func threeSteps(t *testing.T) (*Store, map[planner.Step]Manifest) {
	t.Helper()
	s := openStore(t, t.TempDir(), Options{Self: "me"})
	shared := put(t, s, []byte("shared"))
	all := map[planner.Step]Manifest{}
	for step := planner.Step(1); step <= 3; step++ {
		first, second := put(t, s, noise(uint64(step), ChunkBytes)), put(t, s, noise(uint64(step), 9))
		all[step] = Manifest{Run: "r", Step: step, Generation: 1, Layers: []LayerState{
			{Layer: 0, SizeBytes: 6, Chunks: []planner.Hash{shared}},
			{Layer: 4, SizeBytes: ChunkBytes + 9, Chunks: []planner.Hash{first, second}, Holders: []planner.PeerID{"you"}},
		}}
		if err := s.Commit(all[step]); err != nil {
			t.Fatal(err)
		}
	}
	return s, all
}

func TestCompleteAndWhole(t *testing.T) {
	s, all := threeSteps(t)
	expect := func(when string, complete []planner.Step, whole planner.Step) []Damage {
		t.Helper()
		if got, err := s.Complete(t.Context()); err != nil || !slices.Equal(got, complete) {
			t.Errorf("%s: complete %v, %v; want %v", when, got, err, complete)
		}
		m, damages, err := s.NewestWhole(t.Context(), nil)
		if m.Step != whole || errors.Is(err, ErrNotFound) != (whole == 0) {
			t.Errorf("%s: newest whole step %d, %v; want %d", when, m.Step, err, whole)
		}
		if len(s.guard.held) != 0 {
			t.Errorf("%s: still held: %v", when, s.guard.held)
		}
		return damages
	}
	if d := expect("whole", []planner.Step{3, 2, 1}, 3); len(d) != 0 {
		t.Errorf("damages %v", d)
	}
	if err := os.Remove(s.chunkPath(all[3].Layers[1].Chunks[1])); err != nil {
		t.Fatal(err)
	}
	flip(t, s.chunkPath(all[2].Layers[1].Chunks[0]), ChunkBytes-1)
	d := expect("missing and damaged", []planner.Step{2, 1}, 1)
	if len(d) != 2 || !errors.Is(d[0], ErrNotFound) || !errors.Is(d[1], ErrCorrupt) ||
		!strings.HasPrefix(d[0].Error(), "step 3 layer 4 chunk 1 of 2: ") ||
		!strings.HasPrefix(d[1].Error(), "step 2 layer 4 chunk 0 of 2: ") {
		t.Errorf("damages %v", d)
	}
	expect("the damaged one in quarantine", []planner.Step{1}, 1)
	if err := s.PutNamed(all[2].Layers[1].Chunks[0], noise(2, ChunkBytes)); err != nil {
		t.Fatal(err)
	}
	expect("healed", []planner.Step{2, 1}, 2)
	if err := os.Remove(s.chunkPath(all[1].Layers[0].Chunks[0])); err != nil {
		t.Fatal(err)
	}
	if d := expect("nothing left", nil, 0); len(d) != 3 {
		t.Errorf("damages %v", d)
	}
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
	if err := s.index.write([]Op{{Key: manifestKey(2), Value: wrong.Encode()}}); err != nil {
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
	if _, err := s.Complete(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled list: %v", err)
	}
}

// TestWholeBesideADamagedManifest: the damaged one is told, the next older one given.
func TestWholeBesideADamagedManifest(t *testing.T) {
	s, _ := threeSteps(t)
	if err := s.index.write([]Op{{Key: manifestKey(3), Value: []byte("{")}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Complete(t.Context()); !errors.Is(err, ErrCorrupt) || !slices.Equal(got, []planner.Step{2, 1}) {
		t.Errorf("complete %v, %v", got, err)
	}
	if m, _, err := s.NewestWhole(t.Context(), nil); err != nil || m.Step != 2 {
		t.Errorf("newest whole step %d, %v", m.Step, err)
	}
	if _, err := s.VerifyStep(t.Context(), 3, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("verify: %v", err)
	}
}
