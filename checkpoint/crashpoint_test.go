package checkpoint

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// crasher is a disk that keeps what a crash before each of its changes would leave.
type crasher struct {
	t      *testing.T
	dir    string
	random *rand.Rand
	// A crash is tried before each change whose number has this rest when divided by every: other rests take the others.
	every, rest int
	changes     int
	facts       *facts
	crashes     []crash
	// What a power cut may undo: the size up to which a file is synced, and what its folder has not been synced since.
	synced map[string]int64
	names  []rename
}

// rename is a new name of a file that is not durable yet; before is what had it, nil for nothing.
type rename struct {
	path   string
	before []byte
}

// crash holds what is left, and what was acknowledged before.
type crash struct {
	what  string
	dir   string
	facts *facts
}

func (c *crasher) before(change disk.Change, path string) error {
	c.changes++
	if c.changes%c.every == c.rest {
		kill := c.snapshot()
		c.crashes = append(c.crashes, crash{"kill before " + string(change) + " of " + filepath.Base(path), kill, c.facts.copy()})
		cut := c.snapshot()
		c.undo(cut)
		c.crashes = append(c.crashes, crash{"power cut before " + string(change) + " of " + filepath.Base(path), cut, c.facts.copy()})
	}
	size := func() int64 {
		st, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	switch change {
	case disk.Create:
		c.synced[path] = 0
	case disk.Write:
		if _, known := c.synced[path]; !known {
			c.synced[path] = size()
		}
	case disk.Sync:
		delete(c.synced, path)
	case disk.Rename:
		content, _ := os.ReadFile(path)
		c.names = append(c.names, rename{path, content})
	case disk.SyncFolder:
		kept := c.names[:0]
		for _, r := range c.names {
			if filepath.Dir(r.path) != path {
				kept = append(kept, r)
			}
		}
		c.names = kept
	}
	return nil
}

// snapshot copies the files of the store.
func (c *crasher) snapshot() string {
	to := c.t.TempDir()
	err := filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreMissing(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return ignoreMissing(err)
		}
		target := to + strings.TrimPrefix(path, c.dir)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return to
}

// undo takes from a snapshot what was not synced: some bytes, all of them, or none, and the newest names.
func (c *crasher) undo(dir string) {
	for path, size := range c.synced {
		file := dir + strings.TrimPrefix(path, c.dir)
		content, err := os.ReadFile(file)
		if err != nil || int64(len(content)) <= size {
			continue
		}
		content = content[:size+c.random.Int64N(int64(len(content))-size+1)]
		for i := size; i < int64(len(content)); i++ {
			if c.random.IntN(4) == 0 {
				content[i] = 0
			}
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	if len(c.names) == 0 {
		return
	}
	for _, r := range c.names[c.random.IntN(len(c.names)+1):] {
		file := dir + strings.TrimPrefix(r.path, c.dir)
		err := os.WriteFile(file, r.before, 0o600)
		if r.before == nil {
			err = os.Remove(file)
		}
		if err := ignoreMissing(err); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestACrashBeforeAnyChange kills the process, or cuts the power, before changes of files of every kind: everything acknowledged is
// there, for who reads the store as it was left and for who opens it to go on. It tries one change of four; go test
// ./checkpoint -run ACrashBefore -more 4 tries every one.
func TestACrashBeforeAnyChange(t *testing.T) {
	seed, every := uint64(1), 4
	if testing.Short() {
		every = 30
	}
	kinds := map[string]bool{}
	for range *more {
		t.Logf("seed %d", seed)
		c := &crasher{
			t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 0)), every: every, rest: int(seed) % every, synced: map[string]int64{},
			facts: &facts{manifests: map[plan.Step]plan.Hash{}, chunks: map[plan.Hash][]byte{}, values: map[string][]byte{}},
		}
		if err := openStore(t, c.dir, Options{}).Close(); err != nil {
			t.Fatal(err)
		}
		live(t, c.dir, Options{Disk: disk.Disk{Before: c.before}}, func(note func(*facts)) { note(c.facts) })
		for _, crash := range c.crashes {
			kinds[strings.Fields(crash.what)[len(strings.Fields(crash.what))-3]] = true
			checkCrash(t, seed, crash)
		}
		t.Logf("%d crashes at %d changes", len(c.crashes), c.changes)
		seed++
	}
	if !testing.Short() && len(kinds) < 5 {
		t.Errorf("crashes before changes of the kinds %v alone", kinds)
	}
}

// TestAManifestIsDurableOnceItCounts: the write of one ended between its new name and the flush of that name. The index does not
// say that it must be there before the flush was made up for, whether it is committed again or found by the next process.
func TestAManifestIsDurableOnceItCounts(t *testing.T) {
	for name, again := range map[string]func(*testing.T, *Store, Options, Manifest) error{
		"committed again": func(_ *testing.T, s *Store, _ Options, m Manifest) error { return s.Commit(m) },
		"found": func(t *testing.T, s *Store, o Options, _ Manifest) error {
			if err := s.Close(); err != nil {
				return err
			}
			openStore(t, s.dir, o)
			return nil
		},
	} {
		ended, ends := errors.New("ended"), false
		c := &crasher{t: t, dir: t.TempDir(), every: 1, rest: -1, synced: map[string]int64{}}
		o := Options{Disk: disk.Disk{Before: func(change disk.Change, path string) error {
			if ends && change == disk.SyncFolder && filepath.Base(path) == "manifests" {
				return ended
			}
			return c.before(change, path)
		}}}
		s := openStore(t, c.dir, o)
		m := oneChunk(1, put(t, s, []byte("state")), len("state"))
		ends = true
		if err := s.Commit(m); !errors.Is(err, ended) {
			t.Fatal(err)
		}
		ends = false
		if err := again(t, s, o, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, r := range c.names {
			if filepath.Base(filepath.Dir(r.path)) == "manifests" {
				t.Errorf("%s: a power cut takes the manifest that must be there", name)
			}
		}
	}
}

func checkCrash(t *testing.T, seed uint64, c crash) {
	t.Helper()
	before := contents(t, c.dir)
	for _, o := range []Options{{ReadOnly: true}, {MustExist: true}} {
		s, err := Open(c.dir, o)
		if err != nil {
			t.Errorf("seed %d: %s: open %+v: %v", seed, c.what, o, err)
			return
		}
		r, err := s.Verify(t.Context(), nil)
		if err = errors.Join(err, c.facts.check(s)); err != nil || !r.Whole() {
			t.Errorf("seed %d: %s: %v; %+v", seed, c.what, err, r)
		}
		if err := s.Close(); err != nil {
			t.Errorf("seed %d: %s: close: %v", seed, c.what, err)
		}
		if after := contents(t, c.dir); o.ReadOnly && len(after) != len(before) {
			t.Errorf("seed %d: %s: %d files, %d after they were looked at", seed, c.what, len(before), len(after))
		}
	}
}
