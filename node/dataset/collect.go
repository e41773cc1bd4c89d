package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Options of Collect.
type Options struct {
	// LimitBytes ends the corpus, at a character's end; 0 is MaxBytes, which is also the
	// most that is accepted.
	LimitBytes int64
}

// Report says what Collect took and what it left.
type Report struct {
	Files int   // with at least one byte in the corpus
	Bytes int64 // of the corpus, separators included
	// Skipped files were found in folders or by patterns and are not UTF-8 text, or not
	// regular files.
	Skipped int
	// Truncated tells that the limit cut the corpus; what lies behind was not looked at.
	Truncated bool
}

// Corpus is the text found; its bytes are still in its files.
type Corpus struct {
	Report Report
	files  []source
}

// source is one file and how many of its bytes belong to the corpus.
type source struct {
	path string
	size int64
}

// Collect finds the text under paths: files, folders with everything below them except
// directories whose names begin with a dot, and patterns as of filepath.Match. Paths count
// in the order given, files below one in lexical order, a file only once. It reads every
// file to see that it is UTF-8 without NUL bytes: others are skipped, but an error if named
// as a path. Errors name the path and wrap ErrNotText, ErrNoText or the cause.
func Collect(paths []string, o Options) (*Corpus, error) {
	if o.LimitBytes < 0 || o.LimitBytes > MaxBytes {
		return nil, fmt.Errorf("dataset: limit of %d bytes: 1 to %d are accepted", o.LimitBytes, int64(MaxBytes))
	}
	if o.LimitBytes == 0 {
		o.LimitBytes = MaxBytes
	}
	c := collector{limit: o.LimitBytes, seen: map[string]bool{}}
	for _, path := range paths {
		err := c.path(path)
		if errors.Is(err, errLimit) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("dataset: data %s: %w", path, err)
		}
	}
	if c.report.Files == 0 {
		return nil, fmt.Errorf("dataset: data %s: %w (%d files are not UTF-8 text); name files or folders with text",
			strings.Join(paths, " "), ErrNoText, c.report.Skipped)
	}
	return &Corpus{Report: c.report, files: c.files}, nil
}

// errLimit ends a walk early.
var errLimit = errors.New("limit reached")

type collector struct {
	limit  int64
	seen   map[string]bool // absolute paths
	files  []source
	report Report
}

// path takes one path of the user: a pattern counts as one only if nothing has that name.
func (c *collector) path(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?[") {
		return c.pattern(path)
	}
	if err != nil {
		return explain(err)
	}
	return c.found(path, st, true)
}

func (c *collector) pattern(pattern string) error {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("%w; write * for any characters, ? for one, [a-z] for a range", err)
	}
	if len(matches) == 0 {
		return fmt.Errorf("%w: the pattern matches nothing; check it, or name a folder to take all files below it", ErrNoText)
	}
	for _, path := range matches {
		if hidden(filepath.Base(path)) && !hidden(filepath.Base(pattern)) {
			continue // as in a shell
		}
		st, err := os.Stat(path)
		if err != nil {
			return explain(err)
		}
		if err := c.found(path, st, false); err != nil {
			return err
		}
	}
	return nil
}

// found takes a file or folder that a path or pattern led to.
func (c *collector) found(path string, st fs.FileInfo, named bool) error {
	switch {
	case st.IsDir():
		return c.folder(path)
	case st.Mode().IsRegular():
		return c.file(path, named)
	case named:
		return fmt.Errorf("%w: it is neither a file nor a folder; save the text to a file and name that", ErrNotText)
	}
	c.report.Skipped++
	return nil
}

func (c *collector) folder(path string) error {
	root, err := filepath.EvalSymlinks(path) // WalkDir does not enter a link
	if err != nil {
		return explain(err)
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return explain(err)
		case d.IsDir() && p != root && hidden(d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			c.report.Skipped++
			return nil
		}
		return c.file(p, false)
	})
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// file takes a regular file if it is text and there is room for it.
func (c *collector) file(path string, named bool) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return explain(err)
	}
	if c.seen[absolute] {
		return nil
	}
	c.seen[absolute] = true
	room := c.limit - c.report.Bytes
	if c.report.Files > 0 {
		room-- // the separator
	}
	size, err := textBytes(path, max(room, 0))
	switch {
	case errors.Is(err, ErrNotText) && named:
		return fmt.Errorf("%s is %w; convert it or leave it out", path, err)
	case errors.Is(err, ErrNotText):
		c.report.Skipped++
		return nil
	case err != nil && !errors.Is(err, errLimit):
		return explain(err)
	}
	if size > 0 {
		c.report.Bytes = c.limit - room + size
		c.report.Files++
		c.files = append(c.files, source{path, size})
	}
	c.report.Truncated = c.report.Truncated || err != nil
	return err
}

// explain adds the remedy to an error of the file system, which names the path itself.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; check the spelling, relative paths begin at the current folder", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; make it readable for this user or leave it out", err)
	}
	return err
}
