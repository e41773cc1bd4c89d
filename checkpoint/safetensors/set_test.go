package safetensors

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var setTensors = []Tensor{
	{Name: "first", DType: F32, Shape: []int{4}},
	{Name: "second", DType: F32, Shape: []int{2, 3}},
	{Name: "third", DType: BF16, Shape: []int{8}},
}

func writeSet(t *testing.T, l Layout) {
	t.Helper()
	w, err := CreateSet(setTensors, l)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range setTensors {
		values := slices.Repeat([]float32{float32(i)}, tensor.Len())
		if err := w.Append(tensor.Name, values[:1]); err != nil {
			t.Fatal(err)
		}
		if err := w.Append(tensor.Name, values[1:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return strings.Join(list, " ")
}

func TestSetRoundTrip(t *testing.T) {
	for _, test := range []struct {
		limit int64
		files string
	}{
		{0, "model.safetensors"},
		{56, "model.safetensors"},
		{55, "model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json"},
		{1, "model-00001-of-00003.safetensors model-00002-of-00003.safetensors model-00003-of-00003.safetensors model.safetensors.index.json"},
	} {
		dir := t.TempDir()
		writeSet(t, Layout{Dir: dir, Base: "model", MaxShardBytes: test.limit})
		if got := names(t, dir); got != test.files {
			t.Errorf("limit %d: wrote %s", test.limit, got)
		}
		s, err := OpenSet(dir, "model")
		if err != nil {
			t.Fatal(err)
		}
		if got := len(s.Tensors()); got != len(setTensors) {
			t.Errorf("limit %d: %d tensors", test.limit, got)
		}
		for i, tensor := range setTensors {
			f, err := s.File(tensor.Name)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, tensor.Len())
			if err := f.Floats(tensor.Name, 0, got); err != nil || slices.ContainsFunc(got, func(v float32) bool { return v != float32(i) }) {
				t.Errorf("limit %d: %s is %v, %v", test.limit, tensor.Name, got, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDamagedSets(t *testing.T) {
	index := "model.safetensors.index.json"
	shard1, shard2 := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for name, test := range map[string]struct {
		want   error
		damage func(dir string) error
	}{
		"shard missing": {fs.ErrNotExist, func(dir string) error { return os.Remove(filepath.Join(dir, shard2)) }},
		"the same shard twice": {ErrFormat, func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, shard2)), os.Link(filepath.Join(dir, shard1), filepath.Join(dir, shard2)))
		}},
		"index leaves a tensor out": {ErrFormat, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, index), []byte(`{"weight_map":{"first":"`+shard1+`"}}`), 0o644)
		}},
		"other folder": {ErrFormat, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, index), []byte(`{"weight_map":{"first":"../`+shard1+`"}}`), 0o644)
		}},
		"no JSON": {ErrFormat, func(dir string) error { return os.WriteFile(filepath.Join(dir, index), []byte(`{`), 0o644) }},
		"both forms": {nil, func(dir string) error {
			return os.Link(filepath.Join(dir, shard1), filepath.Join(dir, "model.safetensors"))
		}},
	} {
		dir := t.TempDir()
		writeSet(t, Layout{Dir: dir, Base: "model", MaxShardBytes: 50})
		if err := test.damage(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSet(dir, "model"); err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIncompleteFilesLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := CreateSet(setTensors, Layout{Dir: dir, Base: "model", MaxShardBytes: 50})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append("first", make([]float32, 5)); err == nil {
		t.Error("five elements went into a tensor of four")
	}
	if err := w.Append("none", nil); !errors.Is(err, ErrNoTensor) {
		t.Errorf("unknown tensor: %v", err)
	}
	if err := w.Append("second", make([]float32, 6)); err != nil {
		t.Error(err)
	}
	if err := w.Commit(); !errors.Is(err, ErrIncomplete) {
		t.Errorf("commit: %v", err)
	}
	if got := names(t, dir); got != "" {
		t.Errorf("left behind: %s", got)
	}
}

func TestRefusedLayouts(t *testing.T) {
	for name, tensors := range map[string][]Tensor{
		"twice":    {{Name: "a", DType: F32}, {Name: "a", DType: F32}},
		"type":     {{Name: "a", DType: "F33"}},
		"shape":    {{Name: "a", DType: F32, Shape: []int{-1}}},
		"reserved": {{Name: metadataKey, DType: F32}},
	} {
		for _, limit := range []int64{0, 4} {
			dir := t.TempDir()
			if _, err := CreateSet(tensors, Layout{Dir: dir, Base: "model", MaxShardBytes: limit}); err == nil {
				t.Errorf("%s with limit %d was accepted", name, limit)
			}
			if got := names(t, dir); got != "" {
				t.Errorf("%s left behind: %s", name, got)
			}
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00001.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parseIndex(text)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.ContainsAny(e.file, "/") || !filepath.IsLocal(e.file) {
				t.Fatalf("the index leads to %q", e.file)
			}
		}
	})
}
