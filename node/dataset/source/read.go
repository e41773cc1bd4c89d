package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"pnode/node/dataset/files"
)

// BlankLine as a separator means lines of white space only.
const BlankLine = "blank-line"

// Options of Read.
type Options struct {
	// Field of a JSON object, or column of a parquet file; empty is "text".
	Field string
	// Separator is a line that divides text files into documents, BlankLine for blank ones;
	// empty means that a file is a document.
	Separator string
	// SkipMalformed goes on behind what is malformed.
	SkipMalformed bool
}

func (o Options) field() string {
	if o.Field == "" {
		return "text"
	}
	return o.Field
}

// Skipped counts what Read left out.
type Skipped struct {
	// Malformed documents, with SkipMalformed.
	Malformed int64 `json:"malformed"`
	// Files that were found and are not text.
	Files int64 `json:"files"`
}

// Read returns the documents of a file to each, which must not keep the slice, and how many
// bytes of the file have been read by then. The error of each ends it and is returned as it
// is; others name the file and the place in it.
func Read(f File, o Options, each func(document []byte, readBytes int64) error) (Skipped, error) {
	r := reader{file: f, options: o, each: each}
	err := r.read()
	return r.skipped, err
}

// reader reads one file.
type reader struct {
	file    File
	options Options
	each    func([]byte, int64) error
	skipped Skipped
	raw     counter
}

// counter counts the bytes of the file itself, before unpacking.
type counter struct {
	io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

func (r *reader) read() error {
	f, err := os.Open(r.file.Path)
	if err != nil {
		return fmt.Errorf("source: %w", files.Explain(err))
	}
	defer func() { _ = f.Close() }() // only read
	name := strings.ToLower(filepath.Base(r.file.Path))
	if strings.HasSuffix(name, ".parquet") {
		return r.parquet(f)
	}
	r.raw.Reader = f
	text, name, done, err := unpack(&r.raw, name)
	if err != nil {
		return r.damaged(err)
	}
	defer done()
	lines := bufio.NewReaderSize(text, blockBytes)
	switch {
	case strings.HasSuffix(name, ".jsonl"), strings.HasSuffix(name, ".ndjson"):
		return r.jsonLines(lines)
	default:
		return r.text(lines)
	}
}

// blockBytes are read at a time.
const blockBytes = 256 << 10

// unpack follows the last extension of a name and gives the name without it.
func unpack(file io.Reader, name string) (unpacked io.Reader, inner string, done func(), err error) {
	if inner, ok := strings.CutSuffix(name, ".gz"); ok {
		z, err := gzip.NewReader(file)
		return z, inner, func() {}, err
	}
	if inner, ok := strings.CutSuffix(name, ".zst"); ok {
		// One goroutine, and a window as large as zstd's tool accepts by default.
		z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, "", nil, err
		}
		return z, inner, z.Close, nil
	}
	return file, name, func() {}, nil
}

// damaged is the error of a file that cannot be read on.
func (r *reader) damaged(err error) error {
	return fmt.Errorf("source: %s: %w: %w; get the file again or leave it out", r.file.Path, ErrMalformed, err)
}

// malformed counts what is skipped, or is the error. The place is a line or row from 1.
func (r *reader) malformed(place string, number int64, err error) error {
	if r.options.SkipMalformed {
		r.skipped.Malformed++
		return nil
	}
	return fmt.Errorf("source: %s: %s %d: %w: %w; correct it, or leave such out with --skip-malformed",
		r.file.Path, place, number, ErrMalformed, err)
}

// give hands a document on.
func (r *reader) give(document []byte) error {
	if len(document) == 0 {
		return nil
	}
	return r.each(document, r.raw.bytes)
}

// checkText returns what is wrong with a document.
func checkText(document []byte) error {
	switch {
	case len(document) > MaxDocumentBytes:
		return fmt.Errorf("%w: %d bytes, at most %d are accepted", ErrTooLong, len(document), MaxDocumentBytes)
	case !utf8.Valid(document):
		return errors.New("not UTF-8")
	case bytes.IndexByte(document, 0) >= 0:
		return errors.New("a NUL byte")
	}
	return nil
}

// readLine reads a line with its end into buf. One longer than MaxDocumentBytes is read to
// its end and given as ErrTooLong. io.EOF means that there is no line left.
func readLine(r *bufio.Reader, buf []byte) ([]byte, error) {
	buf = buf[:0]
	long := false
	for {
		part, err := r.ReadSlice('\n')
		long = long || len(buf)+len(part) > maxLineBytes
		if !long {
			buf = append(buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(buf) > 0 || long):
			err = nil
		}
		if err == nil && long {
			err = fmt.Errorf("%w: a line over %d bytes", ErrTooLong, maxLineBytes)
		}
		return buf, err
	}
}

// maxLineBytes leaves room for what JSON writes around and into a document.
const maxLineBytes = 2 * MaxDocumentBytes

// Sentinels, wrapped by the errors of this package.
var (
	// ErrMalformed: a document is not as its format wants it.
	ErrMalformed = errors.New("malformed")
	// ErrTooLong: a document is over MaxDocumentBytes.
	ErrTooLong = errors.New("document too long")
)

// MaxDocumentBytes bounds a document: a tokenizer needs it in memory as a whole.
const MaxDocumentBytes = 64 << 20

// File is one file of the input.
type File struct {
	Path      string
	SizeBytes int64
	// Modified is the time of its last change in nanoseconds: to see that it is the same.
	Modified int64
	// Named reports that the user gave this path, not one that leads to it.
	Named bool
}

// Find lists the files under paths, in the order of files.Find. The error names the path.
func Find(paths []string) ([]File, error) {
	var found []File
	irregular, err := files.Find(paths, func(f files.Found) error {
		st, err := os.Stat(f.Path)
		if err != nil {
			return files.Explain(err)
		}
		if st.Size() > 0 {
			found = append(found, File{Path: f.Path, SizeBytes: st.Size(), Modified: st.ModTime().UnixNano(), Named: f.Named})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if len(found) == 0 && irregular > 0 { // the caches of downloads are made of links
		return nil, fmt.Errorf("source: %w under %q but %d links and the like, which are not followed below folders; name them by a pattern such as %s/*",
			files.ErrNone, strings.Join(paths, " "), irregular, strings.TrimSuffix(paths[0], "/"))
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("source: %w under %q; name files with text, or folders", files.ErrNone, strings.Join(paths, " "))
	}
	return found, nil
}
