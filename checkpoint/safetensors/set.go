package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Bounds of a set.
const (
	// maxShards bounds the files that are open at once.
	maxShards = 1 << 10
	// maxSetHeaderBytes bounds the headers of all files together, and the index.
	maxSetHeaderBytes = 2 * MaxHeaderBytes
	// maxSetTensors bounds the entries of the index.
	maxSetTensors = 2 * MaxTensors
)

// Set is the weights of a folder, in one file or in shards, all open for reading.
type Set struct {
	files  map[string]*File // by file name
	opened []*os.File
	owner  map[string]*File // by tensor name
	// headerBytes is the length of all headers that were read.
	headerBytes int64
}

// OpenSet opens `base.safetensors` in dir, or the shards named by
// `base.safetensors.index.json`; having both is an error, since they may differ. Errors
// wrap fs.ErrNotExist, ErrFormat or the operating system's.
func OpenSet(dir, base string) (*Set, error) {
	s := &Set{files: map[string]*File{}, owner: map[string]*File{}}
	err := s.open(dir, base)
	if err != nil {
		_ = s.Close() // only read
		return nil, fmt.Errorf("safetensors: open weights in %s: %w", dir, err)
	}
	return s, nil
}

func (s *Set) open(dir, base string) error {
	single := base + ".safetensors"
	index, err := readBounded(filepath.Join(dir, indexName(base)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err := s.file(dir, single)
		if err != nil {
			return err
		}
		for _, t := range f.header.tensors {
			s.owner[t.Name] = f
		}
		return nil
	case err != nil:
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, single)); err == nil {
		return fmt.Errorf("both %s and %s are there: remove the one that is out of date", single, indexName(base))
	}
	weights, err := parseIndex(index)
	if err != nil {
		return fmt.Errorf("%s: %w", indexName(base), err)
	}
	return s.openShards(dir, weights)
}

func indexName(base string) string { return base + ".safetensors.index.json" }

// openShards opens every file of the index and checks that both name the same tensors.
func (s *Set) openShards(dir string, weights []indexEntry) error {
	for _, w := range weights {
		f, err := s.file(dir, w.file)
		if err != nil {
			return err
		}
		if _, err := f.Tensor(w.tensor); err != nil {
			return fmt.Errorf("%w: the index puts tensor %q into %s, which lacks it", ErrFormat, w.tensor, w.file)
		}
		s.owner[w.tensor] = f
	}
	for name, f := range s.files {
		for _, t := range f.header.tensors {
			if s.owner[t.Name] != f {
				return fmt.Errorf("%w: %s holds tensor %q, which the index does not put there", ErrFormat, name, t.Name)
			}
		}
	}
	return nil
}

// file opens a file of the set once.
func (s *Set) file(dir, name string) (*File, error) {
	if f, ok := s.files[name]; ok {
		return f, nil
	}
	if len(s.files) == maxShards {
		return nil, fmt.Errorf("%w: more than %d shards", ErrFormat, maxShards)
	}
	r, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, r)
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	f, err := Read(r, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s.headerBytes += f.dataStart; s.headerBytes > maxSetHeaderBytes {
		return nil, fmt.Errorf("%w: the headers up to that of %s take %d bytes: at most %d are accepted", ErrFormat, name, s.headerBytes, maxSetHeaderBytes)
	}
	s.files[name] = f
	return f, nil
}

// Tensors lists the tensors of all files by name.
func (s *Set) Tensors() []Tensor {
	var all []Tensor
	for _, f := range s.files {
		all = append(all, f.header.tensors...)
	}
	slices.SortFunc(all, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// File is the file that holds a tensor; the error wraps ErrNoTensor.
func (s *Set) File(tensor string) (*File, error) {
	f, ok := s.owner[tensor]
	if !ok {
		return nil, fmt.Errorf("safetensors: %w: %q", ErrNoTensor, tensor)
	}
	return f, nil
}

// Close closes the files; what was read stays.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.opened {
		errs = append(errs, f.Close())
	}
	s.opened = nil
	return errors.Join(errs...)
}

// readBounded reads a small file: an index has about as many entries as a header.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxSetHeaderBytes+1))
	if len(b) > maxSetHeaderBytes {
		return nil, fmt.Errorf("%w: %s is over %d bytes", ErrFormat, filepath.Base(path), maxSetHeaderBytes)
	}
	return b, err
}

// indexEntry says which file of the folder holds a tensor.
type indexEntry struct{ tensor, file string }

// parseIndex reads `{"metadata": ..., "weight_map": {tensor: file}}`; what the metadata
// says is of no use here. Files are plain names in the same folder.
func parseIndex(text []byte) ([]indexEntry, error) {
	p := parser{json.NewDecoder(bytes.NewReader(text))}
	var weights map[string]string
	err := p.object(func(key string) (err error) {
		switch {
		case key == "metadata":
			var ignored json.RawMessage
			return p.Decode(&ignored)
		case key == "weight_map" && weights == nil:
			weights, err = p.stringMap(maxSetTensors)
			return err
		}
		return fmt.Errorf("the key %.32q is unknown or stands twice", key)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	entries := make([]indexEntry, 0, len(weights))
	for tensor, file := range weights {
		if filepath.Base(file) != file || !filepath.IsLocal(file) || filepath.Ext(file) != ".safetensors" {
			return nil, fmt.Errorf("%w: %.80q is no safetensors file of the same folder", ErrFormat, file)
		}
		entries = append(entries, indexEntry{tensor, file})
	}
	slices.SortFunc(entries, func(a, b indexEntry) int { return cmp.Compare(a.tensor, b.tensor) })
	return entries, nil
}
