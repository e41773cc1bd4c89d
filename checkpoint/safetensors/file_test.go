package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func reference(t *testing.T) ([]byte, *File) {
	t.Helper()
	stored, err := os.ReadFile("testdata/reference.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Read(bytes.NewReader(stored), int64(len(stored)))
	if err != nil {
		t.Fatal(err)
	}
	return stored, f
}

func TestReferenceValues(t *testing.T) {
	_, f := reference(t)
	inf := float32(math.Inf(1))
	for name, want := range map[string][]float32{
		"a.weight": {0, -1.5, 3.0e38, inf, 1e-40, 0.1},
		"b.half":   {0.099975586, -65504, 5.9604645e-08, inf},
		"brain":    {0.10009765625, -1, inf},
		"scalar":   {7},
		"empty":    {},
	} {
		got := make([]float32, len(want))
		if err := f.Floats(name, 0, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, want)
		}
		if len(want) < 3 {
			continue
		}
		if err := f.Floats(name, 1, got[:2]); err != nil || !slices.Equal(got[:2], want[1:3]) {
			t.Errorf("%s from 1: got %v, %v; want %v", name, got[:2], err, want[1:3])
		}
	}
	if got := f.header.metadata["format"]; got != "pt" {
		t.Errorf("metadata format %q", got)
	}
	if tensor, err := f.Tensor("a.weight"); err != nil || !slices.Equal(tensor.Shape, []int{2, 3}) {
		t.Errorf("a.weight: %v, %v", tensor, err)
	}
}

func TestRefusedReads(t *testing.T) {
	_, f := reference(t)
	one := make([]float32, 1)
	if err := f.Floats("ids", 0, one); !errors.Is(err, ErrDType) {
		t.Errorf("I64 as floats: %v", err)
	}
	if err := f.Floats("none", 0, one); !errors.Is(err, ErrNoTensor) {
		t.Errorf("missing tensor: %v", err)
	}
	for _, first := range []int{-1, 6, math.MaxInt} {
		if err := f.Floats("a.weight", first, one); err == nil {
			t.Errorf("elements from %d of 6 were read", first)
		}
	}
}

// TestWriterEqualsReference writes what the reference wrote, in another order and in
// parts, and expects the same bytes.
func TestWriterEqualsReference(t *testing.T) {
	stored, f := reference(t)
	tensors := slices.Clone(f.header.tensors)
	slices.Reverse(tensors)
	path := filepath.Join(t.TempDir(), "copy.safetensors")
	w, err := Create(path, tensors, f.header.metadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range tensors {
		if err := copyTensor(w, f, tensor); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, stored) {
		t.Errorf("written (%v):\n%q\nwant:\n%q", err, got, stored)
	}
}

// stored is a tensor as the file has it.
func (f *File) stored(name string) ([]byte, error) {
	t := f.byName[name]
	return io.ReadAll(io.NewSectionReader(f.r, f.dataStart+t.offset, t.bytes))
}

// copyTensor goes through float32 where it can, element by element.
func copyTensor(w *Writer, f *File, t Tensor) error {
	if !t.DType.Converts() {
		raw, err := f.stored(t.Name)
		return errors.Join(err, w.put(w.tensors[t.Name], raw))
	}
	one := make([]float32, 1)
	for i := range t.Len() {
		if err := errors.Join(f.Floats(t.Name, i, one), w.Append(t.Name, one)); err != nil {
			return err
		}
	}
	return nil
}

func TestHalfTypesConvertExactly(t *testing.T) {
	src, back := make([]byte, 2), make([]byte, 2)
	value := make([]float32, 1)
	for _, d := range []DType{F16, BF16} {
		for bits := range 1 << 16 {
			binary.LittleEndian.PutUint16(src, uint16(bits))
			d.decode(value, src)
			d.encode(back, value)
			if !bytes.Equal(src, back) {
				t.Fatalf("%s %#04x became %v and then %#x", d, bits, value[0], back)
			}
		}
	}
}

// TestRounding compares with the two neighbours: the nearer one wins, the even one of two
// that are equally near.
func TestRounding(t *testing.T) {
	b := make([]byte, 2)
	v := make([]float32, 2)
	for _, d := range []DType{F16, BF16} {
		for bits := range uint16(0x7bff) {
			if d == BF16 {
				bits += 0x80 // leave float32's own subnormals out
			}
			binary.LittleEndian.PutUint16(b, bits)
			d.decode(v[:1], b)
			binary.LittleEndian.PutUint16(b, bits+1)
			d.decode(v[1:], b)
			middle := float32((float64(v[0]) + float64(v[1])) / 2)
			below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, math.MaxFloat32)
			for x, want := range map[float32]uint16{middle: bits + bits&1, below: bits, above: bits + 1} {
				d.encode(b, []float32{x})
				if got := binary.LittleEndian.Uint16(b); got != want {
					t.Fatalf("%s: %v became %#04x, want %#04x", d, x, got, want)
				}
			}
		}
	}
	F16.encode(b, []float32{-65520}) // half way to 2^16
	if got := binary.LittleEndian.Uint16(b); got != 0xfc00 {
		t.Errorf("-65520 became %#04x, want -Inf", got)
	}
	nan := math.Float32frombits(0x7f800001) // its payload does not fit
	for _, d := range []DType{F16, BF16} {
		d.encode(b, []float32{nan})
		if d.decode(v[:1], b); v[0] == v[0] {
			t.Errorf("%s: NaN became %v", d, v[0])
		}
	}
}

func file(header string, dataBytes int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, dataBytes)...)
}

const oneTensor = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`

func TestRefusedFiles(t *testing.T) {
	huge := binary.LittleEndian.AppendUint64(nil, math.MaxUint64)
	for name, b := range map[string][]byte{
		"empty":            {},
		"short prefix":     {1, 2, 3},
		"huge header":      append(huge, "{}"...),
		"header past end":  binary.LittleEndian.AppendUint64(nil, 3),
		"no object":        file(`[]`, 0),
		"leading space":    file(` {}`, 0),
		"trailing text":    file(oneTensor+"x", 8),
		"second object":    file(oneTensor+"{}", 8),
		"bytes after":      file(oneTensor, 9),
		"bytes missing":    file(oneTensor, 7),
		"gap in front":     file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
		"overlap":          file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4),
		"falling offsets":  file(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[4,0]}}`, 4),
		"size mismatch":    file(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8),
		"shape overflow":   file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}}`, 0),
		"negative":         file(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8),
		"fraction":         file(`{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8),
		"unknown type":     file(`{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}`, 8),
		"half a byte":      file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2),
		"unknown key":      file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}`, 8),
		"missing key":      file(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8),
		"key twice":        file(`{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8),
		"tensor twice":     file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
		"metadata number":  file(`{"__metadata__":{"a":1}}`, 0),
		"three offsets":    file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8),
		"broken character": file("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
	} {
		if _, err := Read(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sound := file(oneTensor, 8)
	if _, err := Read(bytes.NewReader(sound), int64(len(sound))); err != nil {
		t.Errorf("the sound file that the others are broken from: %v", err)
	}
}

// FuzzRead: whatever is accepted is covered exactly by its tensors and comes out the same
// when it is written again, but for the header's spelling.
func FuzzRead(f *testing.F) {
	stored, err := os.ReadFile("testdata/reference.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stored)
	f.Add(file(oneTensor, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		h, err := layout(in.header.tensors, in.header.metadata)
		if err != nil {
			t.Fatalf("read but not laid out: %v", err)
		}
		out, err := h.format()
		if err != nil {
			t.Fatal(err)
		}
		var data int64
		for _, tensor := range h.tensors {
			raw, err := in.stored(tensor.Name)
			if err != nil || int64(len(raw)) != tensor.bytes {
				t.Fatalf("%q: %d bytes, %v", tensor.Name, len(raw), err)
			}
			data += int64(len(raw))
			out = append(out, raw...)
		}
		if data != int64(len(b))-in.dataStart {
			t.Fatalf("tensors hold %d bytes of %d", data, int64(len(b))-in.dataStart)
		}
		again, err := Read(bytes.NewReader(out), int64(len(out)))
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if len(again.byName) != len(in.byName) {
			t.Fatalf("%d tensors became %d", len(in.byName), len(again.byName))
		}
	})
}
