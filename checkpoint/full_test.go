package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"pnode/planner/plan"
)

// TestReserve drives every kind of write through the parts of the reserve.
func TestReserve(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	dir := t.TempDir()
	s := openStore(t, dir, Options{ReserveBytes: 64 << 20, freeBytes: func(string) (int64, error) { return free.Load(), nil }})
	h := put(t, s, []byte("state"))
	if err := s.Commit(oneChunk(1, h, 5)); err != nil {
		t.Fatal(err)
	}
	step := plan.Step(1)
	writes := []struct {
		name string
		do   func() error
	}{
		{"chunk", func() error { step++; _, err := s.PutChunk(fmt.Append(nil, uint64(step))); return err }},
		{"manifest", func() error { step++; return s.Commit(oneChunk(step, h, 5)) }},
		{"bucket", func() error { return s.Bucket("b").Write(sets("k")) }},
		{"pin", func() error { return s.Pin("p", []plan.Hash{h}) }},
		{"unpin", func() error { return s.Unpin("p") }},
		{"retain", func() error { return s.Retain(1) }},
		{"sweep", func() error { _, err := s.Sweep(); return err }},
	}
	for _, level := range []struct {
		free int64
		full string
	}{
		{65 << 20, ""},
		{63 << 20, "chunk"},
		{33 << 20, "chunk"},
		{31 << 20, "chunk manifest"},
		{0, "chunk manifest"},
	} {
		free.Store(1 << 40)
		if err := s.Commit(oneChunk(0, h, 5)); err != nil { // something to retain less of
			t.Fatal(err)
		}
		free.Store(level.free)
		for _, w := range writes {
			err := w.do()
			if full := errors.Is(err, ErrDiskFull); full != strings.Contains(level.full, w.name) || !full && err != nil {
				t.Errorf("%d free: %s: %v", level.free, w.name, err)
			}
			if err != nil && !(strings.Contains(err.Error(), dir) && strings.Contains(err.Error(), plan.Size(level.free)+" free") && strings.Contains(err.Error(), "there, keep fewer checkpoints (--keep)")) {
				t.Errorf("%s: the error lacks path, figure or remedy: %v", w.name, err)
			}
		}
	}
	if got, err := s.Chunk(h); err != nil || string(got) != "state" {
		t.Errorf("reading on a full disk: %q, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("temporaries %v, %v", left, err)
	}
}

// TestOpenOnAFullDisk: what is there can be read and served.
func TestOpenOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	h := put(t, s, []byte("state"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{freeBytes: func(string) (int64, error) { return 0, nil }})
	if _, err := s.Chunk(h); err != nil {
		t.Errorf("read: %v", err)
	}
	if _, err := s.PutChunk([]byte("more")); !errors.Is(err, ErrDiskFull) {
		t.Errorf("put: %v", err)
	}
	broken := errors.New("statfs broken")
	s = openStore(t, t.TempDir(), Options{freeBytes: func(string) (int64, error) { return 0, broken }})
	if _, err := s.PutChunk([]byte("more")); !errors.Is(err, broken) {
		t.Errorf("put: %v", err)
	}
}

// TestWritesUnderWayCount: two writes that fit one by one do not fit together.
func TestWritesUnderWayCount(t *testing.T) {
	s := &space{path: "here", reserve: 100, free: func(string) (int64, error) { return 150, nil }}
	done, err := s.take(30, forChunks)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.take(30, forChunks); !errors.Is(err, ErrDiskFull) {
		t.Errorf("both: %v", err)
	}
	done()
	if _, err := s.take(30, forChunks); err != nil {
		t.Errorf("after the first: %v", err)
	}
}
