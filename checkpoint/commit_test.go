package checkpoint

import (
	"errors"
	"os"
	"strings"
	"testing"

	"pnode/planner/plan"
)

func steps(t *testing.T, s *Store) []plan.Step {
	t.Helper()
	all, err := s.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	var steps []plan.Step
	for _, m := range all {
		steps = append(steps, m.Step)
	}
	return steps
}

func TestManifestsNewestFirst(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte("state"))
	for _, step := range []plan.Step{300, 2, 1 << 60, 0} {
		if err := s.Commit(oneChunk(step, h, 5)); err != nil {
			t.Fatal(err)
		}
	}
	got := steps(t, s)
	want := []plan.Step{1 << 60, 300, 2, 0}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("steps %v, want %v", got, want)
		}
	}
	if _, err := s.Manifest(3); !errors.Is(err, ErrNotFound) {
		t.Errorf("step 3: %v", err)
	}
	if err := s.Retain(2); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, s); len(got) != 2 || got[0] != 1<<60 || got[1] != 300 {
		t.Errorf("retained %v", got)
	}
	if err := s.Retain(5); err != nil || len(steps(t, s)) != 2 {
		t.Errorf("retaining more than there are: %v", err)
	}
	if err := s.Retain(0); err == nil {
		t.Error("retaining nothing is accepted")
	}
	if err := s.Retain(1, 300, 7); err != nil || len(steps(t, s)) != 2 {
		t.Errorf("a step that is to stay: %v", err)
	}
	if err := s.Drop(1<<60, 7); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, s); len(got) != 1 || got[0] != 300 {
		t.Errorf("left after a drop: %v", got)
	}
}

func TestCommitNeedsItsChunks(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Self: "me"})
	h := put(t, s, []byte("state"))
	absent := plan.Hash{9}
	for name, c := range map[string]struct {
		layer LayerState
		want  error
	}{
		"present":                {LayerState{SizeBytes: 5, Chunks: []plan.Hash{h}}, nil},
		"absent":                 {LayerState{SizeBytes: 5, Chunks: []plan.Hash{absent}}, ErrNotFound},
		"another size":           {LayerState{SizeBytes: 4, Chunks: []plan.Hash{h}}, ErrNotFound},
		"absent and mine":        {LayerState{SizeBytes: 5, Chunks: []plan.Hash{absent}, Holders: []plan.PeerID{"you", "me"}}, ErrNotFound},
		"absent and not mine":    {LayerState{SizeBytes: 5, Chunks: []plan.Hash{absent}, Holders: []plan.PeerID{"you"}}, nil},
		"invalid before it goes": {LayerState{SizeBytes: -1}, ErrCorrupt},
	} {
		err := s.Commit(Manifest{Run: "run", Step: 1, Generation: 1, Layers: []LayerState{c.layer}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestCommitAgainstWhatIsThere(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte("state"))
	at := func(step plan.Step, g plan.Generation, run plan.RunID) error {
		m := oneChunk(step, h, 5)
		m.Generation, m.Run = g, run
		return s.Commit(m)
	}
	for _, c := range []struct {
		step plan.Step
		g    plan.Generation
		run  plan.RunID
		want error
	}{
		{10, 2, "a", nil},
		{10, 2, "a", nil}, // again, as after a restart
		{10, 1, "a", ErrStale},
		{10, 3, "a", nil},
		{5, 1, "a", nil}, // an older step of an older generation is no contradiction
		{11, 4, "b", ErrForeign},
		{1, 4, "b", ErrForeign},
	} {
		if err := at(c.step, c.g, c.run); !errors.Is(err, c.want) || c.want == ErrForeign && !strings.Contains(err.Error(), s.dir) {
			t.Errorf("step %d generation %d run %s: %v, want %v", c.step, c.g, c.run, err, c.want)
		}
	}
	if m, err := s.Manifest(10); err != nil || m.Generation != 3 {
		t.Errorf("step 10 has generation %d, %v", m.Generation, err)
	}
}

// TestOnlyAnotherManifestIsWritten: disks have nothing to do where who holds a checkpoint is noted again and has not changed.
func TestOnlyAnotherManifestIsWritten(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte("state"))
	path := s.catalog.manifestPath(10)
	commit := func(g plan.Generation) os.FileInfo {
		t.Helper()
		m := oneChunk(10, h, 5)
		m.Generation = g
		if err := s.Commit(m); err != nil {
			t.Fatal(err)
		}
		file, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := commit(1)
	if again := commit(1); !os.SameFile(first, again) {
		t.Error("the same manifest is written twice")
	}
	newer := commit(2)
	if os.SameFile(first, newer) {
		t.Error("another manifest is not written")
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	commit(2)
	if m, err := s.Manifest(10); err != nil || m.Generation != 2 {
		t.Errorf("a damaged manifest is not mended: %v", err)
	}
}

// TestADamagedManifest does not hide the others, stops the sweep and goes with time.
func TestADamagedManifest(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte("state"))
	for step := range plan.Step(3) {
		if err := s.Commit(oneChunk(step, h, 5)); err != nil {
			t.Fatal(err)
		}
	}
	garbage := put(t, s, []byte("garbage"))
	wrong := sealed(manifestKind, oneChunk(8, h, 5).Encode()) // of another step
	if err := os.WriteFile(s.catalog.manifestPath(1), wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := s.Manifests()
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "step 1") || len(all) != 2 {
		t.Errorf("list of %d: %v", len(all), err)
	}
	if _, err := s.Manifest(1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	if _, err := s.Sweep(); !errors.Is(err, ErrCorrupt) || !s.HasChunk(garbage) {
		t.Errorf("sweep: %v", err)
	}
	if err := s.Commit(oneChunk(3, h, 5)); err != nil {
		t.Errorf("commit beside it: %v", err)
	}
	if err := s.Retain(2); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.Sweep(); err != nil || freed != 7 {
		t.Errorf("sweep after retain: %d, %v", freed, err)
	}
}

// TestALargeManifest is one of a model of 80 GB.
func TestALargeManifest(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{Self: "me"})
	layer := LayerState{SizeBytes: 20_000 * ChunkBytes, Holders: []plan.PeerID{"you"}}
	for i := range 20_000 {
		layer.Chunks = append(layer.Chunks, plan.Hash{byte(i), byte(i >> 8), byte(i >> 16)})
	}
	m := Manifest{Run: "run", Step: 1, Generation: 1, Layers: []LayerState{layer}}
	if err := s.Commit(m); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{Self: "me"})
	if got, err := s.Manifest(1); err != nil || len(got.Layers[0].Chunks) != 20_000 {
		t.Errorf("read back: %v", err)
	}
	layer.Chunks = append(layer.Chunks, make([]plan.Hash, 110_000)...)
	layer.SizeBytes = 130_000 * ChunkBytes
	m.Layers[0] = layer
	if err := s.Commit(m); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the bound: %v", err)
	}
}
