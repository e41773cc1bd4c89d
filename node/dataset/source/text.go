package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"pnode/node/dataset/files"
)

// documents reads a text file.
func (r *Reader) documents() error {
	if !r.file.Named {
		// The error comes again below.
		if head, _ := r.text.Peek(4096); checkText(head[:files.WholeCharacters(head)]) != nil {
			r.tally.skipped.Files++
			return nil
		}
	}
	if r.options.Separator == "" {
		return r.wholeFile()
	}
	return r.separated()
}

func (r *Reader) wholeFile() error {
	document, err := io.ReadAll(io.LimitReader(r.text, MaxDocumentBytes+1))
	if err != nil {
		return r.damaged(err)
	}
	err = checkText(document)
	if errors.Is(err, ErrTooLong) {
		err = fmt.Errorf("%w: over %d bytes; divide the file with --document-separator, or give one JSON object a document (.jsonl)",
			ErrTooLong, MaxDocumentBytes)
	}
	if err != nil {
		return r.malformed("document", 1, err)
	}
	return r.give(document)
}

// separated gathers lines up to one that separates. The line ends around the separator do
// not belong to a document.
func (r *Reader) separated() error {
	d := gathered{reader: r, begin: 1}
	var line []byte
	for number := int64(1); ; number++ {
		var err error
		line, err = readLine(r.text, line)
		switch {
		case errors.Is(err, io.EOF):
			return d.end(number)
		case errors.Is(err, ErrTooLong):
			d.failure = err
		case err != nil:
			return r.damaged(fmt.Errorf("line %d: %w", number, err))
		case separates(line, r.options.Separator):
			if err := d.end(number + 1); err != nil {
				return err
			}
		default:
			d.add(line)
		}
	}
}

// separates reports whether a line divides documents.
func separates(line []byte, separator string) bool {
	if separator == BlankLine {
		return len(bytes.TrimSpace(line)) == 0
	}
	return string(bytes.TrimRight(line, "\r\n")) == separator
}

// gathered is a document that grows by lines.
type gathered struct {
	reader  *Reader
	begin   int64 // its first line
	text    []byte
	failure error
}

func (d *gathered) add(line []byte) {
	if d.failure == nil && len(d.text)+len(line) > MaxDocumentBytes {
		d.failure = fmt.Errorf("%w: over %d bytes", ErrTooLong, MaxDocumentBytes)
	}
	if d.failure == nil {
		d.text = append(d.text, line...)
	}
}

// end returns the document and begins the next at a line.
func (d *gathered) end(next int64) error {
	document := bytes.TrimRight(d.text, "\r\n")
	err := d.failure
	if err == nil {
		err = checkText(document)
	}
	switch {
	case err != nil:
		err = d.reader.malformed("document from line", d.begin, err)
	case len(document) > 0: // several separators in a row are no empty documents
		err = d.reader.give(document)
	}
	d.begin, d.text, d.failure = next, d.text[:0], nil
	return err
}
