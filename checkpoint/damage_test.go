package checkpoint

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/journal"
	"pnode/planner/plan"
)

// lived is a store that was used and closed, and what it acknowledged.
func lived(t *testing.T) (dir string, f *facts) {
	t.Helper()
	f = &facts{manifests: map[plan.Step]plan.Hash{}, chunks: map[plan.Hash][]byte{}, values: map[string][]byte{}}
	dir = t.TempDir()
	live(t, dir, Options{}, func(note func(*facts)) { note(f) })
	return dir, f
}

// copyOf copies a store to damage it.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// verifyOnly verifies a store that is only read, and that it stays as it is.
func verifyOnly(t *testing.T, dir string) (Report, error) {
	t.Helper()
	before := contents(t, dir)
	s, err := Open(dir, Options{ReadOnly: true})
	if err != nil {
		return Report{}, err
	}
	r, err := s.Verify(t.Context(), nil)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, contents(t, dir)) {
		t.Errorf("%s is not as it was before it was looked at", dir)
	}
	return r, nil
}

// TestDamage cuts, empties, removes and replaces what a store keeps. Who looks at it is told, in words of this program, and changes
// nothing. Who opens it to go on has all that it acknowledged, or an error that says what helps.
func TestDamage(t *testing.T) {
	whole, facts := lived(t)
	within := func(parts ...string) func(string) string {
		return func(dir string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	}
	table := func(dir string) string {
		tables, err := filepath.Glob(filepath.Join(dir, "index", treeFolder, "*.sst"))
		if err != nil || len(tables) == 0 {
			t.Fatalf("tables %v, %v", tables, err)
		}
		return tables[0]
	}
	list := within("index", treeFolder, "MANIFEST")
	first, second := within("index", journal.FirstFile), within("index", journal.SecondFile)
	manifest := within("manifests", "step-00000000000000000003")
	cut := func(size int64, paths ...func(string) string) func(string) error {
		return func(dir string) (err error) {
			for _, path := range paths {
				err = errors.Join(err, os.Truncate(path(dir), size))
			}
			return err
		}
	}
	remove := func(path func(string) string) func(string) error {
		return func(dir string) error { return os.RemoveAll(path(dir)) }
	}
	for _, c := range []struct {
		name   string
		harm   func(dir string) error
		told   string // by who looks at it
		opens  error  // to go on
		checks bool   // and all is there then
	}{
		{"a cut table", cut(5985, table), ".sst is not as it was written; nothing is lost", nil, true},
		{"an emptied table", cut(0, table), ".sst is not as it was written; nothing is lost", nil, true},
		{"no table", remove(table), ".sst is missing; nothing is lost", nil, true},
		{"a cut list of tables", cut(24, list), "MANIFEST is not as it was written; nothing is lost", nil, true},
		{"an emptied list of tables", cut(0, list), "MANIFEST is not as it was written; nothing is lost", nil, true},
		{"no key registry", remove(within("index", treeFolder, "KEYREGISTRY")), "KEYREGISTRY is missing; nothing is lost", nil, true},
		{"no Badger", remove(within("index", treeFolder)), "nothing is lost", nil, true},
		{"a cut seal", cut(90, within("index", sealFile)), "badger.seal: corrupt", nil, true},
		{"a cut journal", cut(500, first), "journal: it is damaged at byte 32", nil, true},
		{"an emptied copy", cut(0, second), "journal.copy: it ends after 0 bytes", nil, true},
		{"no journal", remove(first), "journal is missing; nothing is lost", nil, true},
		{"both cut", cut(500, first, second), "both files of the journal are damaged", ErrCorrupt, false},
		{"both emptied", cut(0, first, second), "both files of the journal are damaged", ErrCorrupt, false},
		{"no index", remove(within("index")), "index/journal and index/journal.copy are missing", ErrNoStore, false},
		{"a cut manifest", cut(100, manifest), "manifest of step 3", nil, false},
		{"an emptied manifest", cut(0, manifest), "manifest of step 3", nil, false},
		{"no manifests", remove(within("manifests")), "manifest of step 3: corrupt: its file", nil, false},
		{"a cut format", cut(3, within(formatFile)), "the file format does not say the store's format", nil, true},
	} {
		dir := copyOf(t, whole)
		if err := c.harm(dir); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for range 2 { // the first look changes nothing for the second one
			r, err := verifyOnly(t, dir)
			if err == nil {
				err = errors.Join(r.Damaged, r.Index)
			}
			if r.OK() || err == nil || !strings.Contains(err.Error(), c.told) {
				t.Errorf("%s: looked at: %v; %+v", c.name, err, r)
			}
		}
		s, err := Open(dir, Options{})
		if !errors.Is(err, c.opens) || err != nil && !strings.Contains(err.Error(), "pnode join INVITE") {
			t.Errorf("%s: open: %v", c.name, err)
		}
		if err != nil {
			continue
		}
		if err := facts.check(s); (err == nil) != c.checks {
			t.Errorf("%s: lacks %v", c.name, err)
		}
		if !c.checks { // the others are there, and the log still names this one
			for step, h := range facts.manifests {
				if err := s.Commit(oneChunk(step, h, 1000)); err != nil {
					t.Errorf("%s: commit again: %v", c.name, err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", c.name, err)
		}
		if r, err := verifyOnly(t, dir); err != nil || !r.OK() {
			t.Errorf("%s: not set right: %v, %+v", c.name, err, r)
		}
	}
}

// TestEveryFlippedBitIsTold flips bits of all files that a store keeps, one at a time.
func TestEveryFlippedBitIsTold(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	whole, _ := lived(t)
	r, err := verifyOnly(t, whole)
	if err != nil || !r.OK() {
		t.Fatalf("before: %v, %+v", err, r)
	}
	files := slices.Sorted(maps.Keys(contents(t, whole)))
	bits := *more
	if !testing.Short() {
		bits *= 4
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range min(bits, 8*len(content)) {
			bit := random.IntN(8 * len(content))
			content[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if r, err := verifyOnly(t, whole); err == nil && r.OK() {
				t.Errorf("bit %d of %s is flipped, and all is well: %+v", bit, path, r)
			}
			content[bit/8] ^= 1 << (bit % 8)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := verifyOnly(t, whole); err != nil || !r.OK() || len(files) < 10 {
		t.Fatalf("after: %v, %+v of %d files", err, r, len(files))
	}
}

// TestTheFolderIsRemoved while a store is open: no write is acknowledged any more, it is told, and Close ends.
func TestTheFolderIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := openStore(t, dir, Options{})
	h := put(t, s, []byte("state"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket("log").Write(sets("vote")); !errors.Is(err, ErrGone) {
		t.Errorf("bucket: %v", err)
	}
	if _, err := s.PutChunk([]byte("more")); err == nil {
		t.Error("a chunk is acknowledged")
	}
	if err := s.Commit(oneChunk(1, h, 5)); err == nil {
		t.Error("a manifest is acknowledged")
	}
	if err := <-s.Failed(); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "pnode join INVITE") {
		t.Errorf("told %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
}

// TestATableIsCutWhileItIsInUse: what Badger has mapped is no longer there. Reads go to the journal, and the next write has
// Badger made again.
func TestATableIsCutWhileItIsInUse(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows cuts no file that is in use")
	}
	dir, facts := lived(t)
	s := openStore(t, dir, Options{})
	tables, err := filepath.Glob(filepath.Join(dir, "index", treeFolder, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, path := range tables {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	damaged := s.catalog.ask()
	if err := facts.check(s); err != nil {
		t.Errorf("while it is cut: %v", err)
	}
	if err := s.Bucket("log").Write(sets("k")); err != nil {
		t.Error(err)
	}
	if made := s.catalog.ask(); made == damaged || made == nil {
		t.Error("the damaged tables are asked on")
	}
	if err := facts.check(s); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
