package checkpoint

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

// TestTheWatchTells of a disk that others fill while nothing is written.
func TestTheWatchTells(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	dir := t.TempDir()
	o := Options{ReserveBytes: minReserveBytes, freeBytes: func(string) (int64, error) {
		if n := free.Load(); n >= 0 {
			return n, nil
		}
		return 0, errors.New("no answer for now")
	}}
	s := openStore(t, dir, o)
	h := put(t, s, []byte("state"))
	if err := s.Commit(oneChunk(1, h, 5)); err != nil {
		t.Fatal(err)
	}
	free.Store(-1) // is not taken for a full disk
	if err := s.catalog.lookAtSpace(); err == nil || errors.Is(err, ErrDiskFull) {
		t.Errorf("without an answer: %v", err)
	}
	free.Store(20 << 20)
	err := <-s.Failed()
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "20971520 free") {
		t.Errorf("told %v", err)
	}
	if m, err := s.Manifest(1); err != nil || m.Step != 1 {
		t.Errorf("reading on a full disk: %v", err)
	}
}

// TestCloseOnAFullDisk leaves the index as it is, and locked for this process.
func TestCloseOnAFullDisk(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	dir := t.TempDir()
	s, err := Open(dir, Options{ReserveBytes: minReserveBytes, freeBytes: func(string) (int64, error) { return free.Load(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	h := put(t, s, []byte("state"))
	if err := s.Commit(oneChunk(1, h, 5)); err != nil {
		t.Fatal(err)
	}
	free.Store(0)
	if _, err := s.PutChunk([]byte("refused")); !errors.Is(err, ErrDiskFull) {
		t.Errorf("put: %v", err)
	}
	free.Store(1 << 40) // for a moment, as far as Close knows
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := s.Chunk(h); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("open while the index is not closed: %v", err)
	}
	closeFully(t, s) // as the end of the process would
	s = openStore(t, dir, Options{})
	if m, err := s.Manifest(1); err != nil || m.Layers[0].Chunks[0] != h {
		t.Errorf("after a restart: %+v, %v", m, err)
	}
}
