package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/planner/plan"
)

func openStore(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// noise is n bytes that depend on seed.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

func put(t testing.TB, s interface {
	PutChunk([]byte) (plan.Hash, error)
}, data []byte,
) plan.Hash {
	t.Helper()
	h, err := s.PutChunk(data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// oneChunk is a manifest of one layer with one chunk.
func oneChunk(step plan.Step, h plan.Hash, size int) Manifest {
	return Manifest{Run: "run", Step: step, Generation: 1, Layers: []LayerState{
		{Layer: 0, SizeBytes: int64(size), Chunks: []plan.Hash{h}},
	}}
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEverythingOutlivesClose(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	data := noise(1, 1000)
	h := put(t, s, data)
	if err := s.Commit(oneChunk(7, h, len(data))); err != nil {
		t.Fatal(err)
	}
	if err := s.Pin("data", []plan.Hash{h}); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket("raft").Write([]Op{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{})
	if got, err := s.Chunk(h); err != nil || !bytes.Equal(got, data) {
		t.Errorf("chunk: %d bytes, %v", len(got), err)
	}
	if m, err := s.Manifest(7); err != nil || m.Layers[0].Chunks[0] != h {
		t.Errorf("manifest: %+v, %v", m, err)
	}
	if pins, err := s.Pins(); err != nil || len(pins) != 1 || pins[0] != "data" {
		t.Errorf("pins: %v, %v", pins, err)
	}
	if v, ok, err := s.Bucket("raft").Get([]byte("k")); err != nil || !ok || string(v) != "v" {
		t.Errorf("bucket: %q, %v, %v", v, ok, err)
	}
}

func TestASecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	_, err := Open(dir, Options{})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another directory") {
		t.Fatalf("error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir, Options{})
}

// TestAwaitRelease: the wait ends when the store is closed, not before, and where there is none.
func TestAwaitRelease(t *testing.T) {
	dir := t.TempDir()
	if err := AwaitRelease(t.Context(), dir); err != nil {
		t.Errorf("a folder without a store: %v", err)
	}
	s := openStore(t, dir, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*releaseInterval)
	defer cancel()
	if err := AwaitRelease(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the store is open: %v", err)
	}
	released := make(chan error, 1)
	go func() { released <- AwaitRelease(t.Context(), dir) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
	openStore(t, dir, Options{})
}

func TestOpenRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	h := put(t, s, []byte("kept"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "tmp", "chunk-123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("leftover: %v", err)
	}
	if !s.HasChunk(h) {
		t.Error("the chunk went with the leftovers")
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir(), Options{ReserveBytes: minReserveBytes - 1}); err == nil {
		t.Error("a reserve below the least is accepted")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as the directory: %v", err)
	}
}

// TestMustExist refuses each way in which a store may be gone, and creates nothing.
func TestMustExist(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"the folder is gone":  os.RemoveAll,
		"the folder is empty": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"the index is gone":   func(dir string) error { return os.RemoveAll(filepath.Join(dir, "index")) },
		"the index is empty": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "index")), os.Mkdir(filepath.Join(dir, "index"), 0o700))
		},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		s := openStore(t, dir, Options{})
		put(t, s, []byte("state"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(dir, Options{MustExist: true}); err != nil || s.Close() != nil {
			t.Errorf("%s: before that: %v", name, err)
		}
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		before := countFiles(dir)
		_, err := Open(dir, Options{MustExist: true})
		if !errors.Is(err, ErrNoStore) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "pnode join INVITE") {
			t.Errorf("%s: %v", name, err)
		}
		if after := countFiles(dir); after != before {
			t.Errorf("%s: %d files have become %d", name, before, after)
		}
	}
}

// countFiles counts what is in a folder and below; a folder that is not there has nothing.
func countFiles(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, _ os.DirEntry, err error) error {
		if err == nil {
			n++
		}
		return nil
	})
	return n
}

func TestAfterCloseEverythingIsErrClosed(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	w, b := s.Begin(), s.Bucket("b")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	for name, call := range map[string]func() error{
		"put":       func() error { _, err := s.PutChunk([]byte("x")); return err },
		"writing":   func() error { _, err := w.PutChunk([]byte("x")); return err },
		"chunk":     func() error { _, err := s.Chunk(plan.Hash{}); return err },
		"commit":    func() error { return s.Commit(Manifest{Run: "r", Generation: 1}) },
		"manifests": func() error { _, err := s.Manifests(); return err },
		"manifest":  func() error { _, err := s.Manifest(1); return err },
		"retain":    func() error { return s.Retain(1) },
		"sweep":     func() error { _, err := s.Sweep(); return err },
		"pin":       func() error { return s.Pin("p", nil) },
		"unpin":     func() error { return s.Unpin("p") },
		"pins":      func() error { _, err := s.Pins(); return err },
		"verify":    func() error { _, err := s.Verify(t.Context(), nil); return err },
		"get":       func() error { _, _, err := b.Get([]byte("k")); return err },
		"write":     func() error { return b.Write([]Op{{Key: []byte("k")}}) },
		"scan":      func() error { return b.Scan(nil, false, nil) },
	} {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
