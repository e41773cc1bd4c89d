package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pnode/checkpoint/disk"
)

func open(t testing.TB, dir string, o Options) *Journal {
	t.Helper()
	j, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// TestTooFewOpenFilesAreNoDamage: a file that could not be opened for them is neither damaged nor written anew.
func TestTooFewOpenFilesAreNoDamage(t *testing.T) {
	dir := t.TempDir()
	write(t, open(t, dir, Options{Create: true}), set("a", "b"))
	whole := readSource(dir, FirstFile)
	for _, full := range []error{syscall.EMFILE, syscall.ENFILE} {
		closed := source{name: SecondFile, wrong: &fs.PathError{Op: "open", Path: SecondFile, Err: full}}
		for _, both := range [][2]source{{whole, closed}, {closed, whole}, {closed, closed}} {
			if m, err := merge(both[0], both[1]); !errors.Is(err, full) || errors.Is(err, ErrDamaged) || m.differ {
				t.Errorf("%v: %v, written anew: %v", full, err, m.differ)
			}
		}
	}
}

func set(key, value string) []Op { return []Op{{Key: []byte(key), Value: []byte(value)}} }

func write(t testing.TB, j *Journal, ops []Op) {
	t.Helper()
	if err := j.Write(ops); err != nil {
		t.Fatal(err)
	}
}

// content is all that a journal holds.
func content(t testing.TB, j *Journal) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range j.Keys("") {
		value, ok, err := j.Get([]byte(key))
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", key, ok, err)
		}
		all[key] = string(value)
	}
	return all
}

// files returns the bytes of the two files.
func files(t testing.TB, dir string) (all [2][]byte) {
	t.Helper()
	for i, name := range []string{FirstFile, SecondFile} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = b
	}
	return all
}

// TestAgainstAMap carries out random batches, opens the journal again now and then, and has the files written anew.
func TestAgainstAMap(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	dir, model := t.TempDir(), map[string]string{}
	j := open(t, dir, Options{Create: true})
	rewritings := uint64(0)
	for round := range 300 {
		var batch []Op
		for range 1 + r.IntN(4) {
			key := fmt.Sprint(r.IntN(30))
			if r.IntN(3) == 0 {
				batch = append(batch, Op{Key: []byte(key), Delete: true})
				delete(model, key)
				continue
			}
			value := strings.Repeat(string(rune('a'+r.IntN(20))), r.IntN(20_000))
			batch = append(batch, Op{Key: []byte(key), Value: []byte(value)})
			model[key] = value
		}
		write(t, j, batch)
		if round%40 == 0 {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = open(t, dir, Options{})
		}
		if !maps.Equal(content(t, j), model) || j.Damage() != nil {
			t.Fatalf("round %d: %d keys, want %d; damage %v", round, len(content(t, j)), len(model), j.Damage())
		}
		rewritings = j.head.rewriting
	}
	if both := files(t, dir); !bytes.Equal(both[0], both[1]) || int64(len(both[0])) > 2*j.live+slackBytes || rewritings < 2 {
		t.Errorf("files of %d and %d bytes for %d, written anew %d times", len(both[0]), len(both[1]), j.live, rewritings)
	}
}

// sample is a journal with batches after a rewriting, and what it holds.
func sample(t testing.TB) (data []byte, want map[string]string) {
	t.Helper()
	dir := t.TempDir()
	j := open(t, dir, Options{Create: true})
	write(t, j, set("vote", "term 3"))
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		write(t, j, []Op{{Key: fmt.Appendf(nil, "log %d", i), Value: []byte("entry")}, {Key: []byte("vote"), Value: fmt.Append(nil, "term ", i)}})
	}
	return files(t, dir)[0], content(t, j)
}

// read opens what two files hold; nil is no file.
func read(first, second []byte) (map[string]string, error, error) {
	a, b := parsed(FirstFile, first), parsed(SecondFile, second)
	m, err := merge(a, b)
	if err != nil {
		return nil, nil, err
	}
	all := map[string]string{}
	for _, r := range m.records {
		ops, at, err := decodeBatch(r)
		if err != nil {
			return nil, nil, err
		}
		for i, op := range ops {
			delete(all, string(op.Key))
			if !op.Delete {
				all[string(op.Key)] = string(r[at[i] : at[i]+len(op.Value)])
			}
		}
	}
	return all, m.damage, nil
}

func parsed(name string, data []byte) source {
	s := source{name: name}
	if s.head, s.wrong = decodeHeader(data); s.wrong == nil {
		s.data = data
	}
	return s
}

// TestEveryBit flips each bit of one file, of the other, and of both.
func TestEveryBit(t *testing.T) {
	data, want := sample(t)
	for bit := range 8 * len(data) {
		bad := bytes.Clone(data)
		bad[bit/8] ^= 1 << (bit % 8)
		for i, pair := range [][2][]byte{{bad, data}, {data, bad}} {
			if got, damage, err := read(pair[0], pair[1]); err != nil || damage == nil || !maps.Equal(got, want) {
				t.Fatalf("bit %d of file %d: %v, damage %v, %v", bit, i, got, damage, err)
			}
		}
		if got, _, err := read(bad, bad); err == nil {
			t.Fatalf("bit %d of both files: %v", bit, got)
		}
		for _, pair := range [][2][]byte{{bad, nil}, {nil, bad}} {
			if got, _, err := read(pair[0], pair[1]); err == nil {
				t.Fatalf("bit %d of the only file: %v", bit, got)
			}
		}
	}
}

// TestEveryCut cuts one file after each byte. A second file that only lacks the last batch, or part of it, is what a crash
// leaves.
func TestEveryCut(t *testing.T) {
	data, want := sample(t)
	record, _ := appendRecord(nil, 0, []Op{{Key: []byte("log 4"), Value: []byte("entry")}, {Key: []byte("vote"), Value: []byte("term 4")}})
	last := len(data) - len(record)
	for n := range len(data) {
		if got, damage, err := read(data[:n], data); err != nil || damage == nil || !maps.Equal(got, want) {
			t.Fatalf("first file cut at %d: %v, damage %v, %v", n, got, damage, err)
		}
		got, damage, err := read(data, data[:n])
		if err != nil || (damage == nil) != (n >= last) || !maps.Equal(got, want) {
			t.Fatalf("second file cut at %d: %v, damage %v, %v", n, got, damage, err)
		}
	}
	if got, damage, err := read(data, nil); err != nil || damage == nil || !maps.Equal(got, want) {
		t.Errorf("no second file: %v, damage %v, %v", got, damage, err)
	}
	if _, _, err := read(nil, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("two empty files: %v", err)
	}
	for n := last + 1; n < len(data); n++ {
		got, damage, err := read(data[:n], data[:last])
		if err != nil || damage != nil || got["vote"] != "term 3" {
			t.Errorf("a crash at byte %d of the last batch: %v, damage %v, %v", n, got, damage, err)
		}
		if _, _, err := read(data[:last], data[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("a second file longer than the first one: %v", err)
		}
	}
}

// TestFilesOfDifferentRewritings: a crash left them, or somebody put one back from a copy.
func TestFilesOfDifferentRewritings(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{Create: true})
	write(t, j, set("k", "old"))
	old := files(t, dir)[0]
	write(t, j, set("k", "new"))
	before := files(t, dir)[0]
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	after := files(t, dir)[0]
	broken := bytes.Clone(after)
	broken[len(broken)-1] ^= 1
	write(t, j, set("k", "newer"))
	added := files(t, dir)[0]
	for _, c := range []struct {
		what          string
		first, second []byte
		want          string
		damaged       bool
	}{
		{"between the names", after, before, "new", false},
		{"and the new one is damaged", broken, before, "new", true},
		{"second put back", added, before, "newer", true},
		{"first put back", before, added, "newer", true},
		{"first put back from before", old, after, "new", true},
	} {
		got, damage, err := read(c.first, c.second)
		if err != nil || got["k"] != c.want || (damage != nil) != c.damaged {
			t.Errorf("%s: %v, damage %v, %v", c.what, got, damage, err)
		}
	}
}

// TestOpenHeals writes the damaged file anew, unless it is to read alone.
func TestOpenHeals(t *testing.T) {
	for _, name := range []string{FirstFile, SecondFile} {
		for what, harm := range map[string]func(path string) error{
			"cut":     func(path string) error { return os.Truncate(path, headerBytes+5) },
			"emptied": func(path string) error { return os.Truncate(path, 0) },
			"removed": os.Remove,
			"zeroed":  func(path string) error { return os.WriteFile(path, make([]byte, 200), 0o600) },
		} {
			dir := t.TempDir()
			j := open(t, dir, Options{Create: true})
			write(t, j, set("a", "1"))
			write(t, j, set("b", "2"))
			want := content(t, j)
			if err := errors.Join(j.Close(), harm(filepath.Join(dir, name))); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r := open(t, dir, Options{ReadOnly: true})
				if !maps.Equal(content(t, r), want) || r.Damage() == nil || !strings.Contains(r.Damage().Error(), name+" is missing") && !strings.Contains(r.Damage().Error(), name+": it") {
					t.Errorf("%s %s: read %v, damage %v", name, what, content(t, r), r.Damage())
				}
				if err := r.Write(set("c", "3")); !errors.Is(err, ErrReadOnly) {
					t.Errorf("write to read: %v", err)
				}
			}
			j = open(t, dir, Options{})
			write(t, j, set("c", "3"))
			want["c"] = "3"
			if err := j.Close(); err != nil || j.Damage() == nil {
				t.Error(err, j.Damage())
			}
			if j = open(t, dir, Options{}); !maps.Equal(content(t, j), want) || j.Damage() != nil {
				t.Errorf("%s %s: healed to %v, damage %v", name, what, content(t, j), j.Damage())
			}
		}
	}
	if _, err := Open(t.TempDir(), Options{}); !errors.Is(err, ErrMissing) {
		t.Errorf("nothing there: %v", err)
	}
}

// TestWritesThatFail at each of their changes, and at each of what sets that right: nothing acknowledged is lost, and a write
// after the failures succeeds.
func TestWritesThatFail(t *testing.T) {
	full := errors.New("no space left")
	const changes, setRight = 4, 8
	for at := range changes {
		for again := range 1 + setRight {
			dir, change := t.TempDir(), -1
			j := open(t, dir, Options{Create: true, Disk: disk.Disk{Before: func(disk.Change, string) error {
				if change < 0 { // Open's
					return nil
				}
				if change++; change == 1+at || again > 0 && change == 1+at+again {
					return full
				}
				return nil
			}}})
			write(t, j, set("before", ""))
			change = 0
			acknowledged := map[string]bool{"before": true}
			for _, key := range []string{"a", "b", "c"} {
				acknowledged[key] = j.Write(set(key, "")) == nil
			}
			if acknowledged["a"] || acknowledged["b"] != (again == 0) || !acknowledged["c"] {
				t.Errorf("failures at %d and %d: acknowledged %v", at, again, acknowledged)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			got := content(t, open(t, dir, Options{}))
			for key, there := range acknowledged {
				if _, found := got[key]; there && !found {
					t.Errorf("failures at %d and %d: %s is lost of %v", at, again, key, acknowledged)
				}
			}
		}
	}
}

// TestRemovedWhileOpen: what nobody will find again is not acknowledged, and files of others in the same place stay as they are.
func TestRemovedWhileOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir, Options{Create: true})
	write(t, j, set("a", "1"))
	if j.Gone() {
		t.Error("gone before it was removed")
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	other := open(t, dir, Options{Create: true})
	write(t, other, set("b", "2"))
	for range 2 {
		if err := j.Write(set("a", "2")); !errors.Is(err, ErrGone) || !j.Gone() {
			t.Errorf("removed: %v", err)
		}
	}
	if got := content(t, open(t, dir, Options{})); !maps.Equal(got, map[string]string{"b": "2"}) {
		t.Errorf("the other's files hold %v", got)
	}
}

func TestKeysAndBounds(t *testing.T) {
	j := open(t, t.TempDir(), Options{Create: true})
	write(t, j, slices.Concat(set("a", ""), set("b1", ""), set("b2", ""), set("c", "")))
	if keys := j.Keys("b"); !slices.Equal(keys, []string{"b1", "b2"}) {
		t.Errorf("%v", keys)
	}
	if err := j.Write([]Op{{Key: []byte("k"), Value: make([]byte, maxBatchBytes)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch over the bound: %v", err)
	}
}

// TestDamageWhileOpen: a value that one file lost is in the other one, and neither counts for anything else.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{Create: true})
	write(t, j, set("k", "value"))
	for i, name := range []string{FirstFile, SecondFile} {
		if err := os.Truncate(filepath.Join(dir, name), headerBytes); err != nil {
			t.Fatal(err)
		}
		value, ok, err := j.Get([]byte("k"))
		if i == 0 && (err != nil || !ok || string(value) != "value") || i == 1 && !errors.Is(err, ErrDamaged) {
			t.Errorf("%d files cut: %q, %v, %v", i+1, value, ok, err)
		}
	}
}

// FuzzMerge: whatever two files hold, it is read or refused.
func FuzzMerge(f *testing.F) {
	data, _ := sample(f)
	f.Add(data, data)
	f.Add(data[:60], data)
	f.Add([]byte{}, data[:headerBytes])
	f.Fuzz(func(t *testing.T, first, second []byte) {
		one, _, err := read(first, second)
		if err == nil && len(one) > len(first)+len(second) {
			t.Errorf("%d keys of %d bytes", len(one), len(first)+len(second))
		}
	})
}
