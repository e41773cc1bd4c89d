package safetensors

import (
	"fmt"
	"io"

	"pnode/kernels"
)

// File is a file opened for reading.
type File struct {
	r         io.ReaderAt
	dataStart int64
	header    header
	byName    map[string]Tensor
}

// Read reads and checks the header of a file of size bytes; r stays in use. Errors wrap
// ErrFormat or are r's own.
func Read(r io.ReaderAt, size int64) (*File, error) {
	h, start, err := readHeader(r, size)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	f := &File{r: r, dataStart: start, header: h, byName: make(map[string]Tensor, len(h.tensors))}
	for _, t := range h.tensors {
		f.byName[t.Name] = t
	}
	return f, nil
}

// Tensor finds a tensor by name; the error wraps ErrNoTensor.
func (f *File) Tensor(name string) (Tensor, error) {
	t, ok := f.byName[name]
	if !ok {
		return Tensor{}, fmt.Errorf("safetensors: %w: %q", ErrNoTensor, name)
	}
	return t, nil
}

// Floats fills dst with the elements [first, first+len(dst)) of a tensor. Errors wrap
// ErrNoTensor, ErrDType, or ErrFormat when the file has become shorter.
func (f *File) Floats(name string, first int, dst []float32) error {
	t, err := f.Tensor(name)
	if err != nil {
		return err
	}
	if err := t.checkConverts(); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if first < 0 || first > t.Len()-len(dst) {
		return fmt.Errorf("safetensors: elements %d to %d of tensor %q, which has %d", first, first+len(dst), name, t.Len())
	}
	size := t.DType.bits() / 8
	at := f.dataStart + t.offset + int64(first)*int64(size)
	if t.DType == F32 {
		err = readFull(f.r, kernels.Float32Bytes(dst), at)
	} else {
		err = f.convert(t.DType, dst, at)
	}
	if err != nil {
		return fmt.Errorf("safetensors: read %q: %w", name, err)
	}
	return nil
}

// blockElements is how many elements are converted at a time: 256 KiB of float32.
const blockElements = 64 << 10

func (f *File) convert(d DType, dst []float32, at int64) error {
	size := d.bits() / 8
	buf := make([]byte, size*min(blockElements, len(dst)))
	for len(dst) > 0 {
		n := min(blockElements, len(dst))
		if err := readFull(f.r, buf[:n*size], at); err != nil {
			return err
		}
		d.decode(dst[:n], buf)
		dst, at = dst[n:], at+int64(n*size)
	}
	return nil
}
