package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"pnode/node/dataset"
	"pnode/node/dataset/files"
	"pnode/node/dataset/source"
	"pnode/planner/plan"
)

// Sentinels, wrapped by the errors of this package.
var (
	// ErrNoText: the paths lead to no text at all.
	ErrNoText = errors.New("no text found")
	// ErrNotText: a file named by the user is not UTF-8 text.
	ErrNotText = errors.New("not UTF-8 text")
	// ErrNoGo: no Go source tree on this machine.
	ErrNoGo = errors.New("no Go source tree found")
)

// Options of Find.
type Options struct {
	Source source.Options
	// LimitBytes ends the corpus, at a character's end; 0 is dataset.MaxBytes, which is also the
	// most that is accepted.
	LimitBytes int64
	// Progress, if any, is told how many bytes of the files have been read.
	Progress func(readBytes, totalBytes int64)
}

// Report says what Store took and what it left.
type Report struct {
	Files     int   // with at least one byte in the corpus
	Tables    int   // of them, whose rows are documents
	Documents int64 // with at least one byte in the corpus
	Bytes     int64 // of the corpus, separators included
	Skipped   source.Skipped
	// Irregular is how many links, pipes and the like lie in folders.
	Irregular int
	// Truncated reports that the limit cut the corpus; what lies behind was not looked at.
	Truncated bool
}

// Corpus is the files found; their text is still in them.
type Corpus struct {
	paths     []string
	options   Options
	files     []source.File
	irregular int
}

// Find finds files under paths, in the order of files.Find, and looks at the beginnings of those that are named as paths. Errors name the
// path and wrap ErrNoText or the cause.
func Find(paths []string, o Options) (*Corpus, error) {
	if o.LimitBytes < 0 || o.LimitBytes > dataset.MaxBytes {
		return nil, fmt.Errorf("corpus: limit of %d bytes: 1 to %d are accepted", o.LimitBytes, int64(dataset.MaxBytes))
	}
	if o.LimitBytes == 0 {
		o.LimitBytes = dataset.MaxBytes
	}
	found, irregular, err := source.Find(paths)
	switch {
	case len(paths) == 0 || errors.Is(err, source.ErrEmpty):
		return nil, fmt.Errorf("corpus: data %s: %w (nothing but empty files); name files or folders with text", strings.Join(paths, " "), ErrNoText)
	case err != nil:
		return nil, fmt.Errorf("corpus: data: %w", err)
	}
	for _, f := range found {
		if f.Named { // what a later file lacks is not to be found out after an hour
			r, err := source.Open(f, o.Source)
			if err != nil {
				return nil, fmt.Errorf("corpus: data: %w", err)
			}
			r.Close()
		}
	}
	return &Corpus{paths: paths, options: o, files: found, irregular: irregular}, nil
}

// Store streams the documents, joined by newlines, into chunks, as dataset.StoreChunks does, and gives the spec of the
// stream; the caller adds HeldOutPermille. Errors name the file and wrap ErrNotText, ErrNoText, those of package source or the cause.
func (c *Corpus) Store(ctx context.Context, put func([]byte) (plan.Hash, error)) (plan.DataSpec, Report, error) {
	w := writer{limit: c.options.LimitBytes}
	w.report.Irregular = c.irregular
	chunks, size, err := dataset.StoreChunks(ctx, put, func(chunks io.Writer) error {
		w.chunks = chunks
		return c.write(ctx, &w)
	})
	if err == nil && size == 0 {
		err = fmt.Errorf("corpus: data %s: %w: %v; name files or folders with text", strings.Join(c.paths, " "), ErrNoText, w.report.Skipped)
	}
	return plan.DataSpec{Chunks: chunks, SizeBytes: size}, w.report, err
}

// errLimit ends the corpus.
var errLimit = errors.New("limit reached")

func (c *Corpus) write(ctx context.Context, w *writer) error {
	total := int64(0)
	for _, f := range c.files {
		total += f.SizeBytes
	}
	before := int64(0)
	for _, f := range c.files {
		w.progress = func(read int64) error {
			if c.options.Progress != nil {
				c.options.Progress(before+read, total)
			}
			return ctx.Err()
		}
		err := c.writeFile(w, f)
		if errors.Is(err, errLimit) {
			w.report.Truncated = true
			return nil
		}
		if err != nil {
			return err
		}
		before += f.SizeBytes
	}
	return nil
}

// writeFile writes the documents of a file.
func (c *Corpus) writeFile(w *writer, f source.File) error {
	r, err := source.Open(f, c.options.Source)
	if err != nil {
		return fmt.Errorf("corpus: data: %w", err)
	}
	defer r.Close()
	before, text := w.report.Bytes, r.Format() == source.Text && c.options.Source.Separator == ""
	if text {
		err = w.text(f, r, c.options.Source)
	} else {
		err = r.Documents(func(document []byte, read int64) error {
			if err := w.progress(read); err != nil {
				return err
			}
			return w.document(document)
		})
		w.report.Skipped = w.report.Skipped.Plus(r.Skipped())
	}
	if w.report.Bytes > before {
		w.report.Files++
		if !text {
			w.report.Tables++
		}
	}
	if err != nil && !errors.Is(err, errLimit) {
		err = fmt.Errorf("corpus: data: %w", err)
	}
	return err
}

// writer writes documents up to the limit.
type writer struct {
	chunks   io.Writer
	limit    int64
	progress func(readBytes int64) error
	report   Report
}

// room returns how many bytes the next document may have.
func (w *writer) room() int64 {
	if w.report.Bytes == 0 {
		return w.limit
	}
	return max(w.limit-w.report.Bytes-1, 0) // the separator
}

// document writes a document, or what of it there is room for: then the error is errLimit.
func (w *writer) document(text []byte) error {
	cut := int64(len(text)) > w.room()
	if cut {
		text = text[:files.WholeCharacters(text[:w.room()])]
	}
	err := w.begin(int64(len(text)))
	if err == nil {
		_, err = w.chunks.Write(text)
	}
	if err == nil && cut {
		err = errLimit
	}
	return err
}

// begin counts a document of some size, and separates it from the last one.
func (w *writer) begin(size int64) error {
	if size == 0 {
		return nil
	}
	var err error
	if w.report.Bytes > 0 {
		_, err = w.chunks.Write([]byte{'\n'})
		w.report.Bytes++
	}
	w.report.Bytes += size
	w.report.Documents++
	return err
}
