package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"lukechampine.com/blake3"

	"pnode/planner/plan"
)

func TestChunkSizes(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for _, n := range []int{1, 63, 64, 65, 1025, ChunkBytes - 1, ChunkBytes} {
		data := noise(uint64(n), n)
		h := put(t, s, data)
		if got, err := s.Chunk(h); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
	for _, n := range []int{0, ChunkBytes + 1} {
		if _, err := s.PutChunk(make([]byte, n)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestNameIsBLAKE3 takes the first test vector of the BLAKE3 team: the single byte 0.
func TestNameIsBLAKE3(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, []byte{0})
	if want := "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"; h.String() != want {
		t.Errorf("hash %s, want %s", h, want)
	}
}

func TestAbsentChunk(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := plan.Hash{0xab}
	if _, err := s.Chunk(h); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), h.String()) {
		t.Errorf("error %v", err)
	}
	if s.HasChunk(h) {
		t.Error("has it")
	}
}

func TestDamagedChunkIsMovedAside(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	data := noise(3, 5000)
	damage := map[string]func(path string) error{
		"flipped":   func(p string) error { flip(t, p, 4321); return nil },
		"shortened": func(p string) error { return os.Truncate(p, 4999) },
		"emptied":   func(p string) error { return os.Truncate(p, 0) },
		"huge":      func(p string) error { return os.Truncate(p, ChunkBytes+1) },
	}
	for name, do := range damage {
		h := put(t, s, data) // heals what the last round left
		if err := do(s.chunks.path(h)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Chunk(h); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), h.String()) {
			t.Errorf("%s: first read: %v", name, err)
		}
		if _, err := s.Chunk(h); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: second read: %v", name, err)
		}
		if _, err := os.Stat(s.chunks.quarantinePath(h)); err != nil || s.HasChunk(h) {
			t.Errorf("%s: quarantine: %v, still there: %v", name, err, s.HasChunk(h))
		}
	}
}

// TestPutHealsADamagedFile: a file that is already there is no reason to believe it.
func TestPutHealsADamagedFile(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	data := noise(4, 5000)
	h := put(t, s, data)
	flip(t, s.chunks.path(h), 0)
	put(t, s, data)
	if got, err := s.Chunk(h); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestPutNamedChecksTheName(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	data := []byte("from a peer")
	h := plan.Hash(blake3.Sum256(data))
	if err := s.PutNamed(h, []byte("from a liar")); !errors.Is(err, ErrCorrupt) || s.HasChunk(h) {
		t.Errorf("wrong bytes: %v, stored: %v", err, s.HasChunk(h))
	}
	if err := s.PutNamed(h, data); err != nil || !s.HasChunk(h) {
		t.Errorf("right bytes: %v, stored: %v", err, s.HasChunk(h))
	}
}

func TestLayerThereAndBack(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	w := s.Begin()
	defer w.Abort()
	for _, n := range []int{0, 1, ChunkBytes, ChunkBytes + 1, 2*ChunkBytes + 77} {
		data := noise(uint64(n), n)
		hashes, size, err := w.WriteLayer(t.Context(), iotest.HalfReader(bytes.NewReader(data)), Cut{})
		if err != nil || size != int64(n) || len(hashes) != (n+ChunkBytes-1)/ChunkBytes {
			t.Fatalf("%d bytes: %d chunks of %d bytes, %v", n, len(hashes), size, err)
		}
		var back bytes.Buffer
		if err := s.ReadLayer(t.Context(), hashes, &back); err != nil || !bytes.Equal(back.Bytes(), data) {
			t.Errorf("%d bytes: %d back, %v", n, back.Len(), err)
		}
	}
}

// TestAChunkEndsWithTheHead of a layer's state where that takes no chunk more.
func TestAChunkEndsWithTheHead(t *testing.T) {
	const c = ChunkBytes
	s := openStore(t, t.TempDir(), Options{})
	w := s.Begin()
	defer w.Abort()
	for _, test := range []struct {
		cut  Cut
		want []int64
	}{
		{Cut{Bytes: c + 9, Head: c / 3}, []int64{c / 3, c + 9 - c/3}},
		{Cut{Bytes: 4*c - 20, Head: 2*c - 9}, []int64{c, c - 9, c, c - 11}},
		{Cut{Bytes: 4*c - 5, Head: 2*c - 9}, []int64{c, c, c, c - 5}},
		{Cut{Bytes: c - 9, Head: c / 3}, []int64{c - 9}},
		{Cut{Bytes: 2 * c, Head: c / 3}, []int64{c, c}},
		{Cut{Bytes: 2 * c, Head: c}, []int64{c, c}},
		{Cut{Bytes: 2 * c, Head: 2 * c}, []int64{c, c}},
		{Cut{Bytes: c + 1}, []int64{c, 1}},
		{Cut{Head: 5}, nil},
	} {
		hashes, size, err := w.WriteLayer(t.Context(), bytes.NewReader(noise(7, int(test.cut.Bytes))), test.cut)
		if err != nil || size != test.cut.Bytes {
			t.Fatalf("%+v: %d bytes, %v", test.cut, size, err)
		}
		var got []int64
		begins := int64(0)
		for i, h := range hashes {
			data, err := s.Chunk(h)
			if err != nil {
				t.Fatal(err)
			}
			if test.cut.Begins(i) != begins || test.cut.Chunk(i) != int64(len(data)) {
				t.Errorf("%+v: chunk %d has %d bytes from %d on, want %d from %d on", test.cut, i, len(data), begins, test.cut.Chunk(i), test.cut.Begins(i))
			}
			got, begins = append(got, int64(len(data))), begins+int64(len(data))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: chunks of %v bytes, want %v", test.cut, got, test.want)
		}
		if err := s.Commit(Manifest{Run: "r", Step: plan.Step(begins), Generation: 1, Layers: []LayerState{{SizeBytes: size, Chunks: hashes}}}); err != nil {
			t.Errorf("%+v: %v", test.cut, err)
		}
	}
}

// TestABrokenStreamIsNoLayer: only io.EOF ends a stream well.
func TestABrokenStreamIsNoLayer(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	w := s.Begin()
	defer w.Abort()
	for _, broken := range []error{io.ErrUnexpectedEOF, errors.New("device lost")} {
		_, _, err := w.WriteLayer(t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), Cut{})
		if !errors.Is(err, broken) {
			t.Errorf("%v: %v", broken, err)
		}
	}
}

func TestLayerErrors(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	w := s.Begin()
	h := put(t, w, []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := w.WriteLayer(ctx, strings.NewReader("x"), Cut{}); !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
	if err := s.ReadLayer(ctx, []plan.Hash{h}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if err := s.ReadLayer(t.Context(), []plan.Hash{h, {1}}, io.Discard); !errors.Is(err, ErrNotFound) {
		t.Errorf("missing chunk: %v", err)
	}
	w.Abort()
	w.Abort()
	if _, err := w.PutChunk([]byte("y")); !errors.Is(err, ErrClosed) {
		t.Errorf("put after abort: %v", err)
	}
}

func TestNoTemporaryStays(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	put(t, s, []byte("x"))
	put(t, s, []byte("x"))
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
