package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func scan(t *testing.T, b *Bucket, from []byte, reverse bool, most int) string {
	t.Helper()
	var keys []string
	err := b.Scan(from, reverse, func(key, value []byte) bool {
		if want := "v" + string(key); string(value) != want {
			t.Errorf("key %q has value %q", key, value)
		}
		keys = append(keys, string(key))
		return len(keys) != most
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(keys, " ")
}

func sets(keys ...string) []Op {
	var ops []Op
	for _, k := range keys {
		ops = append(ops, Op{Key: []byte(k), Value: []byte("v" + k)})
	}
	return ops
}

func TestScan(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for name, ops := range map[string][]Op{
		"a": sets("x"), "b": sets("a", "b", "ba", "bb", "b\xff", "c", "\xff", "\xff\xff", ""), "b2": sets("y"), "c": sets("z"),
	} {
		if err := s.Bucket(name).Write(ops); err != nil {
			t.Fatal(err)
		}
	}
	b := s.Bucket("b")
	for _, c := range []struct {
		from    []byte
		reverse bool
		most    int
		want    string
	}{
		{nil, false, 0, " a b ba bb b\xff c \xff \xff\xff"},
		{nil, true, 0, "\xff\xff \xff c b\xff bb ba b a "},
		{nil, false, 3, " a b"},
		{nil, true, 2, "\xff\xff \xff"},
		{[]byte("bb"), false, 0, "bb b\xff c \xff \xff\xff"},
		{[]byte("bb"), true, 0, "bb ba b a "},
		{[]byte("bab"), false, 0, "bb b\xff c \xff \xff\xff"},
		{[]byte("bab"), true, 0, "ba b a "},
		{[]byte("b\xff"), true, 1, "b\xff"},
		{[]byte("\xff\xff\xff"), false, 0, ""},
		{[]byte("\xff\xff\xff"), true, 1, "\xff\xff"},
		{[]byte{}, false, 0, " a b ba bb b\xff c \xff \xff\xff"},
		{[]byte{}, true, 0, ""},
	} {
		if got := scan(t, b, c.from, c.reverse, c.most); got != c.want {
			t.Errorf("%q reverse %v at most %d: %q, want %q", c.from, c.reverse, c.most, got, c.want)
		}
	}
	if got := scan(t, s.Bucket("none"), nil, false, 0); got != "" {
		t.Errorf("an empty bucket has %q", got)
	}
}

// TestBucketAgainstAMap carries out random batches on a bucket and on a map.
func TestBucketAgainstAMap(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	b, model := s.Bucket("b"), map[string]string{}
	r := rand.New(rand.NewPCG(1, 2))
	key := func() []byte { return []byte{byte(r.IntN(6)) * 51, byte(r.IntN(6)) * 51}[:r.IntN(3)] }
	for range 150 {
		var batch []Op
		for range r.IntN(5) {
			k := key()
			if op := (Op{Key: k, Delete: r.IntN(3) == 0}); op.Delete {
				delete(model, string(k))
				batch = append(batch, op)
			} else {
				model[string(k)] = fmt.Sprint(r.Uint32())
				batch = append(batch, Op{Key: k, Value: []byte(model[string(k)])})
			}
		}
		if err := b.Write(batch); err != nil {
			t.Fatal(err)
		}
		var from []byte
		if r.IntN(2) == 0 {
			from = key()
		}
		reverse := r.IntN(2) == 0
		var got []string
		if err := b.Scan(from, reverse, func(k, v []byte) bool { got = append(got, string(k)+"="+string(v)); return true }); err != nil {
			t.Fatal(err)
		}
		if want := scanMap(model, from, reverse); !slices.Equal(got, want) {
			t.Fatalf("from %q, reverse %v: %q, want %q", from, reverse, got, want)
		}
	}
}

func scanMap(model map[string]string, from []byte, reverse bool) []string {
	var want []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if from == nil || reverse && k <= string(from) || !reverse && k >= string(from) {
			want = append(want, k+"="+model[k])
		}
	}
	if reverse {
		slices.Reverse(want)
	}
	return want
}

func TestScanStopsAndMayWrite(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	b := s.Bucket("b")
	if err := b.Write(sets("a", "b", "c")); err != nil {
		t.Fatal(err)
	}
	visited := 0
	err := b.Scan(nil, false, func(_, _ []byte) bool {
		if visited++; visited == 1 {
			if err := b.Write([]Op{{Key: []byte("aa"), Value: []byte("new")}, {Key: []byte("c"), Delete: true}}); err != nil {
				t.Error(err)
			}
		}
		return visited < 2
	})
	if err != nil || visited != 2 {
		t.Errorf("%v after %d", err, visited)
	}
	if _, ok, err := b.Get([]byte("c")); ok || err != nil {
		t.Errorf("c: %v, %v", ok, err)
	}
	if v, ok, err := b.Get([]byte("aa")); !ok || err != nil || string(v) != "new" {
		t.Errorf("aa: %q, %v, %v", v, ok, err)
	}
}

func TestBatchBounds(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	b := s.Bucket("sixteen bytes ..")
	many := make([]Op, MaxBatchOps)
	for i := range many {
		many[i] = Op{Key: fmt.Appendf(nil, "%06d", i), Value: make([]byte, MaxBatchBytes/MaxBatchOps-6)}
	}
	if err := b.Write(many); err != nil {
		t.Errorf("the batch that always fits: %v", err)
	}
	large := []Op{{Key: []byte("large"), Value: noise(1, MaxValueBytes)}, {Key: []byte("small"), Value: []byte("x")}}
	if err := b.Write(large); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := b.Get([]byte("large")); err != nil || !ok || !bytes.Equal(v, large[0].Value) {
		t.Errorf("large value: %d bytes, %v, %v", len(v), ok, err)
	}
	for name, batch := range map[string][]Op{
		"key":        {{Key: make([]byte, MaxKeyBytes+1)}},
		"value":      {{Key: []byte("k"), Value: make([]byte, MaxValueBytes+1)}},
		"operations": slices.Repeat(many, 17),
	} {
		batch = append([]Op{{Key: []byte("first"), Value: []byte("x")}}, batch...)
		if err := b.Write(batch); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok, err := b.Get([]byte("first")); ok || err != nil {
			t.Errorf("%s: half of the batch is there (%v)", name, err)
		}
	}
}

func TestBucketNames(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for _, name := range []string{"", "a\x00b", strings.Repeat("n", maxBucketName+1)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("name %q is accepted", name)
				}
			}()
			s.Bucket(name)
		}()
	}
}
