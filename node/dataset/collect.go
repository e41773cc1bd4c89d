package dataset

import (
	"errors"
	"fmt"
	"strings"

	"pnode/node/dataset/files"
	"pnode/planner/plan"
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
	// Truncated reports that the limit cut the corpus; what lies behind was not looked at.
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

// Collect finds the text under paths, in the order of files.Find. It reads every file to see
// that it is UTF-8 without NUL bytes: others are skipped, but an error if named as a path.
// Errors name the path and wrap ErrNotText, ErrNoText or the cause.
func Collect(paths []string, o Options) (*Corpus, error) {
	if o.LimitBytes < 0 || o.LimitBytes > MaxBytes {
		return nil, fmt.Errorf("dataset: limit of %d bytes: 1 to %d are accepted", o.LimitBytes, int64(MaxBytes))
	}
	if o.LimitBytes == 0 {
		o.LimitBytes = MaxBytes
	}
	c := collector{limit: o.LimitBytes}
	irregular, err := files.Find(paths, c.file)
	c.report.Skipped += irregular
	if err != nil && !errors.Is(err, errLimit) {
		return nil, fmt.Errorf("dataset: data: %w", err)
	}
	if c.report.Files == 0 {
		why := "nothing but empty files"
		if c.report.Skipped > 0 {
			why = plan.Count(c.report.Skipped, "file") + " not UTF-8 text"
		}
		return nil, fmt.Errorf("dataset: data %s: %w (%s); name files or folders with text", strings.Join(paths, " "), ErrNoText, why)
	}
	return &Corpus{Report: c.report, files: c.files}, nil
}

// errLimit ends the search early.
var errLimit = errors.New("limit reached")

type collector struct {
	limit  int64
	files  []source
	report Report
}

// file takes a regular file if it is text and there is room for it.
func (c *collector) file(found files.Found) error {
	room := c.limit - c.report.Bytes
	if c.report.Files > 0 {
		room-- // the separator
	}
	size, err := textBytes(found.Path, max(room, 0))
	switch {
	case errors.Is(err, ErrNotText) && found.Named:
		return fmt.Errorf("%s is %w; convert it or leave it out", found.Path, err)
	case errors.Is(err, ErrNotText):
		c.report.Skipped++
		return nil
	case err != nil && !errors.Is(err, errLimit):
		return files.Explain(err)
	}
	if size > 0 {
		c.report.Bytes = c.limit - room + size
		c.report.Files++
		c.files = append(c.files, source{found.Path, size})
	}
	c.report.Truncated = c.report.Truncated || err != nil
	return err
}
