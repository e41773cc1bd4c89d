package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// smallDisk is a file system of its own in memory.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestARealDiskRunsFull fills a file system with chunks, then with bucket entries: each
// stops with ErrDiskFull instead of a fault, everything acknowledged is there, and after
// making room it goes on.
func TestARealDiskRunsFull(t *testing.T) {
	dir := smallDisk(t, "112m")
	s, err := Open(dir, Options{ReserveBytes: minReserveBytes})
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{Run: "r", Step: 1, Generation: 1, Layers: []LayerState{{}}}
	layer := &m.Layers[0]
	w := s.Begin()
	for ; err == nil; layer.SizeBytes = int64(len(layer.Chunks)) * ChunkBytes {
		var h plan.Hash
		if h, err = w.PutChunk(noise(uint64(len(layer.Chunks)), ChunkBytes)); err == nil {
			layer.Chunks = append(layer.Chunks, h)
		}
	}
	if !errors.Is(err, ErrDiskFull) || len(layer.Chunks) < 4 {
		t.Fatalf("after %d chunks: %v", len(layer.Chunks), err)
	}
	if err := commit(w, m); err != nil {
		t.Fatalf("commit with chunks full: %v", err)
	}
	entries := fillBucket(t, s.Bucket("log"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir, Options{ReserveBytes: minReserveBytes})
	checkFull(t, s, len(layer.Chunks), entries)

	var deletes []Op
	for i := range entries {
		deletes = append(deletes, Op{Key: binary.BigEndian.AppendUint32(nil, uint32(i)), Delete: true})
	}
	if err := s.Bucket("log").Write(deletes); err != nil {
		t.Errorf("deleting: %v", err)
	}
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	if freed := sweep(t, s); freed != layer.SizeBytes {
		t.Errorf("freed %d of %d", freed, layer.SizeBytes)
	}
	if err := s.Bucket("log").Write(sets("k")); err != nil {
		t.Errorf("after making room: %v", err)
	}
}

// fillBucket writes entries of 64 KiB until the disk is full.
func fillBucket(t *testing.T, b *Bucket) (entries int) {
	t.Helper()
	for {
		key := binary.BigEndian.AppendUint32(nil, uint32(entries))
		err := b.Write([]Op{{Key: key, Value: noise(uint64(entries), 64<<10)}})
		if errors.Is(err, ErrDiskFull) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		entries++
	}
}

func checkFull(t *testing.T, s *Store, chunks, entries int) {
	t.Helper()
	r, err := s.Verify(t.Context(), nil)
	if err != nil || !r.OK() || r.Chunks != chunks {
		t.Errorf("verify: %+v, %v", r, err)
	}
	seen := 0
	err = s.Bucket("log").Scan(nil, false, func(key, value []byte) bool {
		if !bytes.Equal(value, noise(uint64(binary.BigEndian.Uint32(key)), 64<<10)) {
			t.Errorf("entry %x has another value", key)
		}
		seen++
		return true
	})
	if err != nil || seen != entries || entries < 100 {
		t.Errorf("%d entries of %d, %v", seen, entries, err)
	}
}

// TestAnotherProgramFillsTheDisk while a process writes: that one ends with a sentence, and
// everything it said to be durable is there once there is room again.
func TestAnotherProgramFillsTheDisk(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	disk := smallDisk(t, "420m")
	dir := filepath.Join(disk, "store")
	last := plan.Step(0)
	for round := range rounds {
		last = max(last, runAndFill(t, dir, 2+7*round))
		checkAfterCrash(t, dir, last)
	}
}

// runAndFill fills the file system of dir after some steps of a writing process, waits for
// its end and makes room again. It gives the last step told.
func runAndFill(t *testing.T, dir string, steps int) plan.Step {
	t.Helper()
	w := startWriter(t, dir)
	filled := make(chan error, 1)
	filler := filepath.Join(filepath.Dir(dir), "filler")
	for n := 1; w.told(); n++ {
		if n == steps {
			go func() { filled <- fillDisk(filler) }()
		}
	}
	if err := <-filled; err != nil {
		t.Fatal(err)
	}
	err, said := w.cmd.Wait(), w.complaint.String()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != crashEnded ||
		!strings.Contains(said, "disk full") || strings.Count(said, "\n") != 1 {
		t.Fatalf("the process ended with %v and said %s", err, said)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	return w.last
}

// fillDisk writes until nothing fits any more.
func fillDisk(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(zeros)
	}
	if !disk.NoSpace(err) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
