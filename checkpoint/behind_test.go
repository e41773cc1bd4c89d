package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"lukechampine.com/blake3"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// syncsOf counts the syncs of a disk, which fail while fails says so.
type syncsOf struct {
	syncs int
	fails bool
}

func (s *syncsOf) before(c disk.Change, path string) error {
	if c != disk.Sync && c != disk.SyncFolder || filepath.Base(filepath.Dir(path)) == "index" {
		return nil
	}
	if s.fails {
		return errors.New("the disk fails")
	}
	s.syncs++
	return nil
}

// TestWhatIsWrittenBehindIsReadAtOnce: chunks that are not durable yet are read, counted and swept as others are. They are durable once that
// was asked for, and lost with the process else.
func TestWhatIsWrittenBehindIsReadAtOnce(t *testing.T) {
	dir, syncs := t.TempDir(), &syncsOf{}
	open := func() *Store {
		s, err := Open(dir, Options{Disk: disk.Disk{Before: syncs.before}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	store := open()
	put := func(w *Writing, text string) plan.Hash {
		h, err := w.PutChunk([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	reads := func(h plan.Hash, want string) {
		t.Helper()
		if data, err := store.Chunk(h); string(data) != want || err != nil || !store.HasChunk(h) {
			t.Errorf("%q, %v; want %q", data, err, want)
		}
	}
	was := syncs.syncs
	w := store.BeginBehind()
	settled, pinned, left := put(w, "settled"), put(w, "pinned"), put(w, "left")
	put(w, "settled")
	if syncs.syncs != was {
		t.Errorf("%d syncs while it is written", syncs.syncs-was)
	}
	reads(settled, "settled")
	if err := store.Pin("p", []plan.Hash{settled, pinned}); err != nil {
		t.Fatal(err)
	}
	if err := store.Settle([]plan.Hash{settled, plan.Hash(blake3.Sum256([]byte("not here")))}); err != nil {
		t.Fatal(err)
	}
	reads(settled, "settled")
	w.Abort()
	if _, err := store.Sweep(); err != nil {
		t.Fatal(err)
	}
	reads(pinned, "pinned")
	if store.HasChunk(left) {
		t.Error("what nothing refers to was not swept")
	}
	if n, err := os.ReadDir(filepath.Join(dir, "tmp")); len(n) != 1 || err != nil {
		t.Errorf("%d files in tmp, want that of the pinned chunk: %v", len(n), err)
	}
	store.Close()
	store = open()
	defer store.Close()
	reads(settled, "settled")
	if store.HasChunk(pinned) {
		t.Error("a chunk that was never durable is there after a restart")
	}
}

// TestAManifestMakesItsChunksDurable: no manifest is there before the chunks that this node holds. A sync that fails is not taken for done by the next one.
func TestAManifestMakesItsChunksDurable(t *testing.T) {
	dir, syncs := t.TempDir(), &syncsOf{}
	store, err := Open(dir, Options{Self: "me", Disk: disk.Disk{Before: syncs.before}})
	if err != nil {
		t.Fatal(err)
	}
	w := store.BeginBehind()
	data := bytes.Repeat([]byte{1}, 1000)
	hashes, size, err := w.WriteLayer(t.Context(), bytes.NewReader(data), Cut{})
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{Run: "run", Step: 5, Generation: 1, Layers: []LayerState{{SizeBytes: size, Chunks: hashes, Holders: []plan.PeerID{"me"}}}}
	syncs.fails = true
	if err := store.Commit(m); err == nil {
		t.Fatal("a manifest whose chunk is not durable was stored")
	}
	if got, err := store.Chunk(hashes[0]); !bytes.Equal(got, data) || err != nil {
		t.Errorf("%d bytes, %v: it can be read still", len(got), err)
	}
	syncs.fails = false
	was := syncs.syncs
	if err := store.Commit(m); err != nil {
		t.Fatal(err)
	}
	if n := syncs.syncs - was; n < 3 { // the bytes once more, their folder, and the manifest
		t.Errorf("%d syncs", n)
	}
	w.Abort()
	store.Close()
	store, err = Open(dir, Options{Self: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if got, err := store.Chunk(hashes[0]); !bytes.Equal(got, data) || err != nil {
		t.Errorf("%d bytes after a restart, %v", len(got), err)
	}
}

// TestANameOfAProcessBeforeIsMadeDurable: that ended between a chunk's name and the flush of it. Who asks for the chunk to be durable gets that.
func TestANameOfAProcessBeforeIsMadeDurable(t *testing.T) {
	ends := false
	c := &crasher{t: t, dir: t.TempDir(), every: 1, rest: -1, synced: map[string]int64{}}
	o := Options{Disk: disk.Disk{Before: func(change disk.Change, path string) error {
		if ends && change == disk.SyncFolder {
			return errors.New("ended")
		}
		return c.before(change, path)
	}}}
	s := openStore(t, c.dir, o)
	h, err := s.BeginBehind().PutChunk([]byte("state"))
	if err != nil {
		t.Fatal(err)
	}
	ends = true
	if err := s.Settle([]plan.Hash{h}); err == nil {
		t.Fatal("it is durable without a flush of its name")
	}
	ends = false
	s.Close()
	s = openStore(t, c.dir, o)
	if !s.HasChunk(h) {
		t.Fatal("it has no name")
	}
	if err := s.Settle([]plan.Hash{h}); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.names {
		if filepath.Base(r.path) == h.String() {
			t.Error("a power cut takes a chunk that is said to be durable")
		}
	}
}

// TestADamagedChunkInMemoryIsReplaced by one that is fetched, before it was read or after.
func TestADamagedChunkInMemoryIsReplaced(t *testing.T) {
	for _, read := range []bool{false, true} {
		s := openStore(t, t.TempDir(), Options{})
		h, err := s.BeginBehind().PutChunk([]byte("state"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.chunks.behind.get(h).path, make([]byte, 5), 0o600); err != nil {
			t.Fatal(err)
		}
		if read {
			if _, err := s.Chunk(h); !errors.Is(err, ErrCorrupt) || s.HasChunk(h) {
				t.Errorf("%v; it is here: %t", err, s.HasChunk(h))
			}
		}
		if err := errors.Join(s.PutNamed(h, []byte("state")), s.Settle([]plan.Hash{h})); err != nil {
			t.Fatal(err)
		}
		if data, err := s.Chunk(h); string(data) != "state" || err != nil {
			t.Errorf("%q, %v once it was put again", data, err)
		}
	}
}

// TestAChunkThatIsReadIsMadeDurable also where a file that is open gets no other name and cannot be removed.
func TestAChunkThatIsReadIsMadeDurable(t *testing.T) {
	dir, renames := t.TempDir(), 0
	o := Options{Disk: disk.Disk{Before: func(change disk.Change, path string) error {
		chunk := filepath.Base(filepath.Dir(filepath.Dir(path))) == "chunks"
		if change == disk.Rename && chunk {
			renames++
		}
		if change == disk.Rename && chunk && renames == 1 || change == disk.Remove {
			return errors.New("it is open")
		}
		return nil
	}}}
	s := openStore(t, dir, o)
	h, err := s.BeginBehind().PutChunk([]byte("state"))
	if err == nil {
		err = s.Settle([]plan.Hash{h})
	}
	if err != nil || renames != 2 {
		t.Fatalf("%v after %d renames", err, renames)
	}
	s.Close()
	if s = openStore(t, dir, Options{}); !s.HasChunk(h) {
		t.Error("it is lost with the process")
	}
}

// TestALayerThatIsMissingHoldsUpNoOther: where the chunks of one are lost, those of the others are durable all the same.
func TestALayerThatIsMissingHoldsUpNoOther(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, Options{Self: "me"})
	w := store.BeginBehind()
	data := bytes.Repeat([]byte{1}, 1000)
	hashes, size, err := w.WriteLayer(t.Context(), bytes.NewReader(data), Cut{})
	if err != nil {
		t.Fatal(err)
	}
	lost := LayerState{SizeBytes: 3, Chunks: []plan.Hash{plan.Hash(blake3.Sum256([]byte("not here")))}, Holders: []plan.PeerID{"me"}}
	if err := store.Commit(Manifest{Run: "run", Step: 5, Generation: 1, Layers: []LayerState{lost, {Layer: 1, SizeBytes: size, Chunks: hashes, Holders: []plan.PeerID{"me"}}}}); !errors.Is(err, ErrNotFound) {
		t.Fatalf("a manifest was stored whose first layer is missing: %v", err)
	}
	w.Abort()
	store.Close()
	store = openStore(t, dir, Options{Self: "me"})
	if got, err := store.Chunk(hashes[0]); !bytes.Equal(got, data) || err != nil {
		t.Errorf("%d bytes after a restart, %v", len(got), err)
	}
}
