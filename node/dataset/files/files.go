package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

var (
	// ErrNone: a pattern matches nothing.
	ErrNone = errors.New("no file found")
	// ErrMissing: a path names nothing. It wraps fs.ErrNotExist.
	ErrMissing error = missing{}
	// ErrNotRegular: a path names something that is neither a file nor a folder.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge: a file is larger than what is read of it.
	ErrTooLarge = errors.New("too large")
)

type missing struct{}

func (missing) Error() string { return "no such file or folder" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// Found is a regular file.
type Found struct {
	Path string
	// Named reports that the user gave this path, not one that leads to it.
	Named bool
}

// Find returns each file under paths to take: files, folders with everything below them
// except directories whose names begin with a dot, and patterns as of filepath.Match. Paths
// count in the order given, files below one in lexical order, a file only once. It counts
// what is not regular below folders. The error of take ends it and is returned as it is;
// others name the path and the remedy.
func Find(paths []string, take func(Found) error) (irregular int, err error) {
	f := finder{take: take, seen: map[string]bool{}}
	for _, path := range paths {
		st, err := os.Stat(path)
		switch {
		case err == nil:
			err = f.found(path, st, true)
		case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?["): // a pattern only if nothing has that name
			err = f.pattern(path)
		default:
			err = Explain(err)
		}
		if err != nil {
			return f.irregular, err
		}
	}
	return f.irregular, nil
}

type finder struct {
	take      func(Found) error
	seen      map[string]bool // absolute paths
	irregular int
}

func (f *finder) pattern(pattern string) error {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("%s: %w; write * for any characters, ? for one, [a-z] for a range", pattern, err)
	}
	if len(matches) == 0 {
		return fmt.Errorf("%w: the pattern %s matches nothing; check it, or name a folder to take all files below it", ErrNone, pattern)
	}
	for _, path := range matches {
		if hidden(filepath.Base(path)) && !hidden(filepath.Base(pattern)) {
			continue // as in a shell
		}
		st, err := os.Stat(path)
		if err != nil {
			return Explain(err)
		}
		if err := f.found(path, st, false); err != nil {
			return err
		}
	}
	return nil
}

// found takes a file or folder that a path or pattern led to.
func (f *finder) found(path string, st fs.FileInfo, named bool) error {
	switch {
	case st.IsDir():
		return f.folder(path)
	case st.Mode().IsRegular():
		return f.file(Found{path, named})
	case named:
		return fmt.Errorf("%w: %s is neither a file nor a folder; save it to a file and name that", ErrNotRegular, path)
	}
	f.irregular++
	return nil
}

func (f *finder) folder(path string) error {
	root, err := filepath.EvalSymlinks(path) // WalkDir does not enter a link
	if err != nil {
		return Explain(err)
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return Explain(err)
		case d.IsDir() && p != root && hidden(d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			f.irregular++
			return nil
		}
		return f.file(Found{Path: p})
	})
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

func (f *finder) file(found Found) error {
	absolute, err := filepath.Abs(found.Path)
	if err != nil {
		return Explain(err)
	}
	if f.seen[absolute] {
		return nil
	}
	f.seen[absolute] = true
	return f.take(found)
}

// Explain adds the remedy to an error of the file system, which names the path itself.
func Explain(err error) error {
	at := (*fs.PathError)(nil)
	switch {
	case errors.As(err, &at) && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w; check the spelling, relative paths begin at the current folder", at.Path, ErrMissing)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; make it readable for this user or leave it out", err)
	}
	return err
}

// Read returns the content of a file of at most limit bytes; of a larger one the error wraps ErrTooLarge.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s: %w: over %d bytes", path, ErrTooLarge, limit)
	}
	return content, err
}

// WholeCharacters returns the length of b without a character cut off at its end.
func WholeCharacters(b []byte) int {
	for back := 1; back <= min(utf8.UTFMax, len(b)); back++ {
		if start := len(b) - back; utf8.RuneStart(b[start]) {
			if utf8.FullRune(b[start:]) {
				break
			}
			return start
		}
	}
	return len(b)
}

// Replace puts content in the place of a file in one step: whoever reads it gets all of
// the old or all of the new, after a crash too. Who may read it is the umask's to say.
func Replace(path string, content []byte) error {
	f, err := os.OpenFile(path+"."+rand.Text(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
