package twofold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// suffix ends the name of the second copy.
const suffix = ".copy"

// ErrDamaged is wrapped when neither copy is valid.
var ErrDamaged = errors.New("damaged, and so is its copy")

// Write replaces both copies of a file in dir, the first one first.
func Write(dir, name string, data []byte) error {
	if err := replace(dir, name, data); err != nil {
		return err
	}
	return replace(dir, name+suffix, data)
}

// Create writes a file that must not exist yet, else the error is fs.ErrExist. When two create at once,
// one gets that error.
func Create(dir, name string, data []byte) error {
	if Exists(dir, name) {
		return fs.ErrExist
	}
	tmp, err := writeTemp(dir, name, data)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	path := filepath.Join(dir, name)
	if err := os.Link(tmp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fs.ErrExist
		}
		// A file system without hard links: a rename is whole too, though it would win
		// over a file made in the same instant.
		if err := os.Rename(tmp, path); err != nil {
			return err
		}
	}
	return replace(dir, name+suffix, data)
}

// Read returns the parsed contents of the first copy that parse accepts, of at most limit bytes, and
// replaces a copy that parse refuses. Without any file the error is fs.ErrNotExist. When both are
// refused it wraps ErrDamaged and says what is wrong with the first.
func Read[T any](dir, name string, limit int64, parse func([]byte) (T, error)) (T, error) {
	path := filepath.Join(dir, name)
	first, v, err := read(path, limit, parse)
	second, w, copyErr := read(path+suffix, limit, parse)
	switch {
	case err == nil && copyErr == nil:
		return v, nil
	case err == nil:
		_ = replace(dir, name+suffix, first) // on a full disk the next Read tries again
		return v, nil
	case copyErr == nil:
		_ = replace(dir, name, second)
		return w, nil
	case errors.Is(err, fs.ErrNotExist) && errors.Is(copyErr, fs.ErrNotExist):
		return v, fs.ErrNotExist
	case errors.Is(err, fs.ErrNotExist):
		err = copyErr
	}
	return v, fmt.Errorf("%s is %w: %w", path, ErrDamaged, err)
}

func read[T any](path string, limit int64, parse func([]byte) (T, error)) (data []byte, v T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, v, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	if err == nil {
		v, err = parse(data)
	}
	return data, v, err
}

// Exists reports whether either copy of a file exists.
func Exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	_, copyErr := os.Stat(filepath.Join(dir, name+suffix))
	return err == nil || copyErr == nil
}

// Remove removes both copies.
func Remove(dir, name string) error {
	return errors.Join(remove(filepath.Join(dir, name+suffix)), remove(filepath.Join(dir, name)))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replace writes one copy, in a single step that survives a power cut.
func replace(dir, name string, data []byte) error {
	tmp, err := writeTemp(dir, name, data)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(dir)
}

// writeTemp writes data to a synced file of mode 0600 in dir and returns its path.
func writeTemp(dir, name string, data []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, "."+name+"-*") // CreateTemp's mode is 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
