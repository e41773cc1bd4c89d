package safetensors

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pnode/kernels"
)

// Writer makes one file. Each tensor is filled from its first element on by any number of
// Append calls; tensors may take turns. Not safe for concurrent use.
type Writer struct {
	path    string
	tmp     *os.File
	start   int64
	tensors map[string]*growing
	buf     []byte
}

// growing is a tensor with the bytes it has so far.
type growing struct {
	Tensor
	written int64
}

// Create begins the file at path under a temporary name in the same folder. metadata may
// be nil. Commit or Discard must follow.
func Create(path string, tensors []Tensor, metadata map[string]string) (*Writer, error) {
	h, err := layout(tensors, metadata)
	if err != nil {
		return nil, err
	}
	front, err := h.format()
	if err != nil {
		return nil, err
	}
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()+".tmp")
	tmp, err := os.OpenFile(hidden, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666) // less the umask
	if err != nil {
		return nil, fmt.Errorf("safetensors: create %s: %w", path, err)
	}
	w := &Writer{path: path, tmp: tmp, start: int64(len(front)), tensors: make(map[string]*growing, len(tensors))}
	for _, t := range h.tensors {
		w.tensors[t.Name] = &growing{Tensor: t}
	}
	if _, err := tmp.WriteAt(front, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("safetensors: write %s: %w", path, err), w.Discard())
	}
	return w, nil
}

// Append adds elements to a tensor, rounded to its type (to nearest, ties to even). Errors
// wrap ErrNoTensor, ErrDType or the operating system's.
func (w *Writer) Append(name string, values []float32) error {
	t, ok := w.tensors[name]
	if !ok {
		return fmt.Errorf("safetensors: write %s: %w: %q", w.path, ErrNoTensor, name)
	}
	if err := t.checkConverts(); err != nil {
		return fmt.Errorf("safetensors: write %s: %w", w.path, err)
	}
	if t.DType == F32 {
		return w.put(t, kernels.Float32Bytes(values))
	}
	for size := t.DType.bits() / 8; len(values) > 0; {
		n := min(len(values), blockElements)
		if w.buf == nil {
			w.buf = make([]byte, size*blockElements)
		}
		t.DType.encode(w.buf, values[:n])
		if err := w.put(t, w.buf[:n*size]); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

func (w *Writer) put(t *growing, b []byte) error {
	if int64(len(b)) > t.bytes-t.written {
		return fmt.Errorf("safetensors: write %s: tensor %q has room for %d more bytes, not for %d", w.path, t.Name, t.bytes-t.written, len(b))
	}
	if _, err := w.tmp.WriteAt(b, w.start+t.offset+t.written); err != nil {
		return fmt.Errorf("safetensors: write %s: %w", w.path, err)
	}
	t.written += int64(len(b))
	return nil
}

// Commit gives the file its name, over one that has it already, once it is complete and
// on disk. It fails with ErrIncomplete, and discards the file, when a tensor is not full.
func (w *Writer) Commit() error {
	if err := w.finish(); err != nil {
		return errors.Join(err, w.Discard())
	}
	return w.rename()
}

// finish checks, syncs and closes the temporary file.
func (w *Writer) finish() error {
	for _, t := range w.tensors {
		if t.written < t.bytes {
			return fmt.Errorf("safetensors: write %s: %w: %q has %d of %d bytes", w.path, ErrIncomplete, t.Name, t.written, t.bytes)
		}
	}
	if err := w.tmp.Sync(); err != nil {
		return fmt.Errorf("safetensors: write %s: %w", w.path, err)
	}
	return w.tmp.Close()
}

func (w *Writer) rename() error {
	if err := os.Rename(w.tmp.Name(), w.path); err != nil {
		return errors.Join(fmt.Errorf("safetensors: write %s: %w", w.path, err), os.Remove(w.tmp.Name()))
	}
	return nil
}

// Discard gives the file up.
func (w *Writer) Discard() error {
	_ = w.tmp.Close() // may be closed already
	return os.Remove(w.tmp.Name())
}
