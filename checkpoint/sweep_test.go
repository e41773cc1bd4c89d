package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pnode/checkpoint/journal"
	"pnode/planner/plan"
)

func sweep(t *testing.T, s *Store) int64 {
	t.Helper()
	freed, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	return freed
}

func TestSweepKeepsWhatIsReferredTo(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	inManifest, pinned := put(t, s, []byte("manifest")), put(t, s, []byte("pin"))
	garbage, writing := put(t, s, []byte("garbage")), s.Begin()
	held := put(t, writing, []byte("held"))
	if err := s.Commit(oneChunk(1, inManifest, 8)); err != nil {
		t.Fatal(err)
	}
	if err := s.Pin("data", []plan.Hash{pinned}); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want ...plan.Hash) {
		t.Helper()
		sweep(t, s)
		for _, h := range []plan.Hash{inManifest, pinned, garbage, held} {
			expected := false
			for _, w := range want {
				expected = expected || w == h
			}
			if s.HasChunk(h) != expected {
				t.Errorf("%s: chunk %s: there %v, want %v", when, h, !expected, expected)
			}
		}
	}
	check("first", inManifest, pinned, held)
	writing.Abort()
	check("after abort", inManifest, pinned)
	if err := s.Pin("data", nil); err != nil {
		t.Fatal(err)
	}
	check("pin replaced", inManifest)
	if err := s.Unpin("data"); err != nil {
		t.Fatal(err)
	}
	if err := s.Unpin("data"); err != nil {
		t.Errorf("a pin that is not there: %v", err)
	}
	next := s.Begin()
	defer next.Abort()
	h := put(t, next, []byte("next"))
	if err := commit(next, oneChunk(2, h, 4)); err != nil {
		t.Fatal(err)
	}
	if err := s.Retain(1); err != nil {
		t.Fatal(err)
	}
	if freed := sweep(t, s); freed != 8 || !s.HasChunk(h) || s.HasChunk(inManifest) {
		t.Errorf("after retain: freed %d, new %v, old %v", freed, s.HasChunk(h), s.HasChunk(inManifest))
	}
}

func TestSweepOfTheQuarantine(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte("state"))
	if err := s.Pin("p", []plan.Hash{h}); err != nil {
		t.Fatal(err)
	}
	flip(t, s.chunks.path(h), 2)
	if _, err := s.Chunk(h); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	sweep(t, s)
	if _, err := os.Stat(s.chunks.quarantinePath(h)); err != nil {
		t.Errorf("needed and not there again: %v", err)
	}
	put(t, s, []byte("state"))
	sweep(t, s)
	if _, err := os.Stat(s.chunks.quarantinePath(h)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there again: %v", err)
	}
}

// TestTheIndexStaysSmall: what values took that were replaced comes back.
func TestTheIndexStaysSmall(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	const valueBytes = 1 << 20
	for i := range 20 {
		if err := s.Bucket("b").Write([]Op{{Key: []byte("k"), Value: noise(uint64(i), valueBytes)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{journal.FirstFile, journal.SecondFile} {
		if st, err := os.Stat(filepath.Join(dir, "index", name)); err != nil || st.Size() > 5*valueBytes {
			t.Errorf("%s has %d bytes, %v", name, st.Size(), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if size := folderBytes(filepath.Join(dir, "index", treeFolder)); size < 20*valueBytes {
		t.Fatalf("Badger has %d bytes: nothing to make smaller", size)
	}
	s = openStore(t, dir, Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if size := folderBytes(filepath.Join(dir, "index", treeFolder)); size > 5*valueBytes {
		t.Errorf("Badger has %d bytes after a restart", size)
	}
}

// TestGuard goes through the orders in which a sweep meets a writer.
func TestGuard(t *testing.T) {
	var g guard
	h := plan.Hash{1}
	removed := func() bool {
		t.Helper()
		done, err := g.collect(h, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	g.sweeping(true)
	if !removed() {
		t.Error("a chunk nobody holds stays")
	}
	g.hold(h)
	g.hold(h)
	g.release(h)
	if removed() {
		t.Error("a held chunk goes")
	}
	g.release(h)
	if removed() {
		t.Error("a chunk released during the sweep goes")
	}
	g.sweeping(false)
	g.sweeping(true)
	if !removed() {
		t.Error("a chunk released before the sweep stays")
	}
	g.sweeping(false)
	if len(g.held) != 0 || g.kept != nil {
		t.Errorf("left over: %v %v", g.held, g.kept)
	}
	broken := errors.New("broken")
	if _, err := g.collect(h, func() error { return broken }); err != broken {
		t.Errorf("error of remove: %v", err)
	}
}

// TestSweepDuringWrites runs sweeps without pause beside writers that share chunks: every
// committed step is complete in the end, and nothing else is left.
func TestSweepDuringWrites(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	const writers, rounds = 4, 12
	stop := make(chan struct{})
	var sweeper, group sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Sweep(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for id := range writers {
		group.Go(func() {
			for round := range rounds {
				if err := writeStep(s, plan.Step(id*rounds+round), round); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	close(stop)
	sweeper.Wait()
	r, err := s.Verify(t.Context(), nil)
	if err != nil || !r.OK() || len(r.Manifests) != writers*rounds {
		t.Fatalf("verify: %+v, %v", r, err)
	}
	sweep(t, s)
	files := 0
	if err := s.chunks.walk(func(plan.Hash, int64) error { files++; return nil }); err != nil {
		t.Fatal(err)
	}
	if files != r.Chunks {
		t.Errorf("%d files for %d chunks", files, r.Chunks)
	}
}

// writeStep commits a step with one chunk of its own and one that the other writers put
// and give up in the same round.
func writeStep(s *Store, step plan.Step, round int) error {
	w := s.Begin()
	defer w.Abort()
	m := Manifest{Run: "run", Step: step, Generation: 1}
	for layer, text := range []string{fmt.Sprint("own ", step), fmt.Sprint("shared ", round)} {
		hashes, size, err := w.WriteLayer(context.Background(), bytes.NewReader([]byte(text)), Cut{})
		if err != nil {
			return err
		}
		m.Layers = append(m.Layers, LayerState{Layer: layer, SizeBytes: size, Chunks: hashes})
	}
	if step%3 == 0 {
		extra := s.Begin()
		if _, err := extra.PutChunk([]byte(fmt.Sprint("shared ", round+1))); err != nil {
			return err
		}
		extra.Abort()
	}
	return commit(w, m)
}

// commit stores a manifest of chunks that were put through a Writing, and ends that.
func commit(w *Writing, m Manifest) error {
	defer w.Abort()
	return w.s.Commit(m)
}
