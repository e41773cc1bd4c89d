package twofold

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// suffix ends the name of the second copy.
const suffix = ".copy"

// ErrDamaged is wrapped when neither copy is valid.
var ErrDamaged = errors.New("damaged, and so is its copy")

// sealPrefix begins the last line of a copy, which has a checksum of the lines before it.
const sealPrefix = "# sha256 "

// seal appends the last line to a text.
func seal(text []byte) []byte {
	sealed := slices.Clone(text)
	if !bytes.HasSuffix(text, []byte("\n")) {
		sealed = append(sealed, '\n')
	}
	return fmt.Appendf(sealed, "%s%x\n", sealPrefix, sha256.Sum256(sealed))
}

// unseal cuts the last line off and checks it. A file of an older pnode has none.
func unseal(data []byte) (text []byte, sealed bool, err error) {
	begin := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n') + 1
	if !bytes.HasPrefix(data[begin:], []byte(sealPrefix)) {
		return data, false, nil
	}
	if text = data[:begin:begin]; !bytes.Equal(seal(text), data) {
		return nil, false, errors.New("its bytes do not match its checksum")
	}
	return text, true, nil
}

// Write replaces both copies of a file in dir, the first one first. The file is text: it is read back with a newline at its end.
func Write(dir, name string, data []byte) error {
	data = seal(data)
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
	data = seal(data)
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

// Read returns the parsed contents of the first copy that is as it was written and that parse accepts, of at most limit bytes. It
// changes nothing. A copy without a checksum counts only where the other has none either. Without any file the
// error is fs.ErrNotExist. When both are refused it wraps ErrDamaged and says what is wrong with the first. Where no more files can be
// opened it is the operating system's.
func Read[T any](dir, name string, limit int64, parse func([]byte) (T, error)) (T, error) {
	path := filepath.Join(dir, name)
	first, second := read(path, limit, parse), read(path+suffix, limit, parse)
	if first.err == nil && second.err == nil && second.sealed && !first.sealed {
		first.err = errors.New("it lost its checksum")
	}
	switch {
	case first.err == nil:
		return first.value, nil
	case noFiles(first.err) || noFiles(second.err):
		return first.value, errors.Join(first.err, second.err)
	case second.err == nil:
		return second.value, nil
	case errors.Is(first.err, fs.ErrNotExist) && errors.Is(second.err, fs.ErrNotExist):
		return first.value, fs.ErrNotExist
	case errors.Is(first.err, fs.ErrNotExist):
		first.err = second.err
	}
	return first.value, fmt.Errorf("%s is %w: %w", path, ErrDamaged, first.err)
}

// Damage says what is wrong with one copy of a file.
type Damage struct {
	Path string
	Err  error
	// Copied reports that the other copy is whole, from which Mend makes this one anew.
	Copied bool
}

// Verify compares both copies of a file in dir, of at most limit bytes, with their checksums, has check look at what they say, and
// changes nothing: a copy that lost its checksum may be damaged all the same. Without any file the error is fs.ErrNotExist. Where no
// more files can be opened it is the operating system's.
func Verify(dir, name string, limit int64, check func(data []byte) error) (damaged []Damage, err error) {
	asIs := func(data []byte) ([]byte, error) {
		if len(data) == 0 {
			return nil, errors.New("it is empty")
		}
		return data, check(data)
	}
	paths := [2]string{filepath.Join(dir, name), filepath.Join(dir, name+suffix)}
	var copies [2]reading[[]byte]
	for i, path := range paths {
		copies[i] = read(path, limit, asIs)
	}
	if a, b := copies[0].err, copies[1].err; noFiles(a) || noFiles(b) {
		return nil, errors.Join(a, b)
	}
	for i, c := range copies {
		other := copies[1-i]
		switch {
		case errors.Is(c.err, fs.ErrNotExist) && errors.Is(other.err, fs.ErrNotExist):
			return nil, fs.ErrNotExist
		case errors.Is(c.err, fs.ErrNotExist):
			c.err = errors.New("it is missing")
		case c.err == nil && !c.sealed && other.sealed:
			c.err = errors.New("it lost its checksum")
		case c.err == nil && i == 1 && other.err == nil && c.sealed == other.sealed && !bytes.Equal(c.value, other.value):
			c.err = errors.New("it is not that of the file") // a write that ended between the two
		}
		if c.err != nil {
			damaged = append(damaged, Damage{paths[i], c.err, other.err == nil})
		}
	}
	return damaged, nil
}

// Mend writes a copy that Verify names anew from the other one, where that is whole. Without any file it does nothing.
func Mend(dir, name string, limit int64, check func(data []byte) error) error {
	damaged, err := Verify(dir, name, limit, check)
	if noFiles(err) {
		return err
	}
	if err != nil || len(damaged) != 1 || !damaged[0].Copied {
		return nil //nolint:nilerr // there is nothing to mend it from
	}
	from, to := name, name+suffix
	if damaged[0].Path == filepath.Join(dir, name) {
		from, to = to, from
	}
	data, err := os.ReadFile(filepath.Join(dir, from))
	if err != nil {
		return err
	}
	return replace(dir, to, data)
}

// noFiles reports whether a file was not opened since the process, or the machine, has too many open: nothing is known of it.
func noFiles(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// reading is one copy as it was read.
type reading[T any] struct {
	data   []byte
	value  T
	sealed bool
	err    error
}

func read[T any](path string, limit int64, parse func([]byte) (T, error)) (r reading[T]) {
	f, err := os.Open(path)
	if err != nil {
		r.err = err
		return r
	}
	defer func() { _ = f.Close() }() // only read
	limit += int64(len(seal(nil)))
	if r.data, r.err = io.ReadAll(io.LimitReader(f, limit+1)); r.err == nil && int64(len(r.data)) > limit {
		r.err = fmt.Errorf("more than %d bytes", limit)
	}
	text := r.data
	if r.err == nil {
		text, r.sealed, r.err = unseal(r.data)
	}
	if r.err == nil {
		r.value, r.err = parse(text)
	}
	return r
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
