package checkpoint

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// contents are the files of a folder but for the lock, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "lock" {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestReaders: several read what is there, values apart from the tables included, nobody writes
// meanwhile, and they leave every byte as it is.
func TestReaders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]")
	s := openStore(t, dir, Options{})
	h, large := put(t, s, []byte("state")), noise(1, 3<<20)
	if err := s.Commit(oneChunk(7, h, 5)); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket("b").Write([]Op{{Key: []byte("large"), Value: large}}); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, Options{ReadOnly: true})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "wait until it has ended") {
		t.Errorf("beside a writer: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	one, two := openStore(t, dir, Options{ReadOnly: true}), openStore(t, dir, Options{ReadOnly: true})
	for _, r := range []*Store{one, two} {
		if m, err := r.Manifest(7); err != nil || m.Layers[0].Chunks[0] != h {
			t.Errorf("%+v, %v", m, err)
		}
		if data, err := r.Chunk(h); err != nil || string(data) != "state" {
			t.Errorf("%q, %v", data, err)
		}
		if v, ok, err := r.Bucket("b").Get([]byte("large")); err != nil || !ok || !bytes.Equal(v, large) {
			t.Errorf("%d bytes, %v, %v", len(v), ok, err)
		}
	}
	for name, write := range map[string]func() error{
		"chunk":    func() error { _, err := one.PutChunk([]byte("more")); return err },
		"manifest": func() error { return one.Commit(oneChunk(8, h, 5)) },
		"bucket":   func() error { return one.Bucket("b").Write(sets("k")) },
		"pin":      func() error { return one.Pin("p", []plan.Hash{h}) },
		"retain":   func() error { return one.Retain(1) },
		"sweep":    func() error { _, err := one.Sweep(); return err },
	} {
		if err := write(); !errors.Is(err, ErrReadOnly) && (name != "retain" || err != nil) { // one is kept
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer beside readers: %v", err)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Errorf("%d files before, %d after, or other bytes", len(before), len(after))
	}
	openStore(t, dir, Options{})
}

// TestReadersOfWhatACrashLeft share it, and leave it as it is.
func TestReadersOfWhatACrashLeft(t *testing.T) {
	from, dir := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	s := openStore(t, from, Options{})
	h := put(t, s, []byte("state"))
	if err := s.Commit(oneChunk(7, h, 5)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil { // as a crash now would leave it
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tmp", "half"), []byte("ha"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	for range 2 {
		one := openStore(t, dir, Options{ReadOnly: true})
		if m, err := one.Manifest(7); err != nil || m.Layers[0].Chunks[0] != h {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Errorf("%d files before, %d after, or other bytes", len(before), len(after))
	}
	if _, err := Open(filepath.Join(dir, "none"), Options{ReadOnly: true}); !errors.Is(err, ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
}

// TestALookIsWaitedFor: who lists the nodes of a machine does not keep one from starting.
func TestALookIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, lockFile))
		if err != nil {
			t.Fatal(err)
		}
		if err := tryShare(f); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(readersPatience/2, func() { _ = f.Close() })
		release, err := Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if g := Peek(dir); !g.InUse || g.PID != os.Getpid() {
			t.Errorf("the folder looks like %+v, want it in use by process %d", g, os.Getpid())
		}
		before := time.Now()
		if _, err := Lock(dir); !errors.Is(err, ErrLocked) || !time.Now().Equal(before) {
			t.Errorf("a folder in use: %v after %v", err, time.Since(before))
		}
	})
}
