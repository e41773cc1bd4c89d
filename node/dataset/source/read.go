package source

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"pnode/node/dataset/files"
)

// BlankLine as a separator means lines of white space only.
const BlankLine = "blank-line"

// Options of Open and Read.
type Options struct {
	// Column has the text: of a Parquet or CSV file, or a field of JSON objects; empty is DefaultColumn.
	Column string
	// Separator is a line that divides text files into documents, BlankLine for blank ones;
	// empty means that a file is a document.
	Separator string
	// SkipMalformed leaves out any number of malformed documents; else more than 1 in 100 of a file is an error.
	SkipMalformed bool
	// Plain takes every file as text, as it lies there.
	Plain bool
}

// DefaultColumn names the column that most data sets have their text in.
const DefaultColumn = "text"

// TextColumn returns the column that the text is in.
func (o Options) TextColumn() string {
	if o.Column == "" {
		return DefaultColumn
	}
	return o.Column
}

// Read returns the documents of a file to each, which must not keep the slice, and how many
// bytes of the file have been read by then. The error of each ends it and is returned as it
// is; others name the file and the place in it.
func Read(f File, o Options, each func(document []byte, readBytes int64) error) (Skipped, error) {
	r, err := Open(f, o)
	if err != nil {
		return Skipped{}, err
	}
	defer r.Close()
	err = r.Documents(each)
	return r.Skipped(), err
}

// MostBytes bounds the text in a file by its size; it is below 0 for one that is packed. The error is that of Open.
func MostBytes(f File, o Options) (int64, error) {
	r, err := Open(f, o)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if r.packed || r.format == Parquet {
		return -1, nil
	}
	return f.SizeBytes, nil
}

// Reader reads one file.
type Reader struct {
	file    File
	options Options
	format  Format
	guessed bool // the format, by the content, not the name
	each    func([]byte, int64) error
	tally   tally

	disk   *os.File
	raw    counter
	text   *bufio.Reader // unpacked; nil for Parquet
	packed bool
	unpack func()             // ends the unpacking
	table  *parquet.File      // of Parquet
	column parquet.LeafColumn // of its text
	given  int64              // bytes of documents
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

// Open finds out what a file holds. The error names the file, and what it lacks where that shows at its beginning.
func Open(f File, o Options) (*Reader, error) {
	disk, err := os.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("source: %w", files.Explain(err))
	}
	r := &Reader{file: f, options: o, disk: disk, raw: counter{Reader: disk}, unpack: func() {}}
	if err := r.detect(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Format returns how the file holds documents.
func (r *Reader) Format() Format { return r.format }

// Skipped returns what was left out so far.
func (r *Reader) Skipped() Skipped { return r.tally.skipped }

// Close closes the file, which was only read.
func (r *Reader) Close() {
	r.unpack()
	_ = r.disk.Close()
}

// Text returns the whole text of a file of Format Text, unpacked and without the mark that may begin it. Its bytes may be anything.
func (r *Reader) Text() io.Reader { return r.text }

// Documents is the rest of Read.
func (r *Reader) Documents(each func(document []byte, readBytes int64) error) (err error) {
	r.each = each
	switch r.format {
	case Text:
		err = r.documents()
	case JSONLines:
		err = r.jsonLines()
	case CSV:
		err = r.csv()
	case Parquet:
		err = r.parquet()
	case Other: // it has been counted
	}
	if err == nil {
		err = r.tally.end(r)
	}
	if r.guessed && errors.Is(err, ErrMalformed) {
		err = fmt.Errorf("%w. It is read as %v since its beginning is; to read it as text, name a --column that it does not have", err, r.format)
	}
	return err
}

// blockBytes are read at a time.
const blockBytes = 256 << 10

// give hands a document on.
func (r *Reader) give(document []byte) error {
	if len(document) == 0 {
		r.tally.skipped.Empty++
		return nil
	}
	r.tally.documents++
	r.given += int64(len(document))
	if r.format == Parquet && r.given > mostUnpacked(r.file.SizeBytes) { // what unpacks other files looks itself
		return r.damaged(errBomb(r.file.SizeBytes))
	}
	return r.each(document, r.raw.bytes)
}

// readLine reads a line with its end into buf. One longer than maxLineBytes is read to
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

// MaxDocumentBytes bounds a document: a tokenizer needs it in memory as a whole.
const MaxDocumentBytes = 64 << 20
