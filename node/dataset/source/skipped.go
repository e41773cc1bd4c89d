package source

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"pnode/planner/plan"
)

// Sentinels, wrapped by the errors of this package.
var (
	// ErrMalformed: a document is not as its format wants it.
	ErrMalformed = errors.New("malformed")
	// ErrTooLong: a document is over MaxDocumentBytes.
	ErrTooLong = errors.New("document too long")
	// ErrNoColumn: a file lacks the column that the text is to be in.
	ErrNoColumn = errors.New("no such column")

	errNotUTF8   = errors.New("not UTF-8")
	errWrongType = errors.New("no text")
	errNull      = errors.New("null") // counts as an empty document
)

// Skipped counts what was left out, by the reason.
type Skipped struct {
	// Empty documents, and rows where a null stands for the text.
	Empty int64 `json:"empty,omitempty"`
	// NotUTF8 documents are not UTF-8, or have a NUL byte.
	NotUTF8 int64 `json:"not_utf8,omitempty"`
	// WrongType is a number and the like in place of the text, or nothing.
	WrongType int64 `json:"wrong_type,omitempty"`
	// TooLong documents are over MaxDocumentBytes.
	TooLong int64 `json:"too_long,omitempty"`
	// Malformed lines and rows cannot be read.
	Malformed int64 `json:"malformed"`
	// Files that were found and are not text.
	Files int64 `json:"files"`
	// FilesNoColumn were found and lack the column.
	FilesNoColumn int64 `json:"files_no_column,omitempty"`
	// First is the first reason, with its place; empty documents and files that are not text need none.
	First string `json:"first,omitempty"`
}

// Documents counts those that should have been text.
func (s Skipped) Documents() int64 { return s.NotUTF8 + s.WrongType + s.TooLong + s.Malformed }

// Plus adds what was left out of other files, read later.
func (s Skipped) Plus(t Skipped) Skipped {
	s.Empty += t.Empty
	s.NotUTF8 += t.NotUTF8
	s.WrongType += t.WrongType
	s.TooLong += t.TooLong
	s.Malformed += t.Malformed
	s.Files += t.Files
	s.FilesNoColumn += t.FilesNoColumn
	if s.First == "" {
		s.First = t.First
	}
	return s
}

// String says for people what was left out; it is empty if nothing was.
func (s Skipped) String() string {
	var parts []string
	for _, p := range []struct {
		count      int64
		what, rest string
	}{
		{s.Empty, "empty document", ""},
		{s.Malformed, "malformed row", ""},
		{s.NotUTF8, "document", " not in UTF-8"},
		{s.WrongType, "row", " without text"},
		{s.TooLong, "document", fmt.Sprintf(" over %d MiB", MaxDocumentBytes>>20)},
		{s.Files, "file", " that held no text"},
		{s.FilesNoColumn, "file", " without the column"},
	} {
		if p.count > 0 {
			parts = append(parts, plan.Count(int(p.count), p.what)+p.rest)
		}
	}
	text := strings.Join(parts, ", ")
	if s.First != "" {
		text += " (the first: " + s.First + ")"
	}
	return text
}

const (
	// toleratedShare of a file's documents, one in so many, may be malformed.
	toleratedShare = 100
	// enoughMalformed are judged before the end of the file.
	enoughMalformed = 1000
)

// tally judges how many documents of a file are malformed.
type tally struct {
	skipped   Skipped
	documents int64 // that were read
	first     error
}

// malformed counts what is left out. The place is a line or row from 1.
func (r *Reader) malformed(place string, number int64, why error) error {
	t := &r.tally
	s := &t.skipped
	switch {
	case errors.Is(why, errNull):
		s.Empty++
		return nil
	case errors.Is(why, errNotUTF8):
		s.NotUTF8++
	case errors.Is(why, errWrongType):
		s.WrongType++
	case errors.Is(why, ErrTooLong):
		s.TooLong++
	default:
		s.Malformed++
	}
	if t.first == nil {
		t.first = fmt.Errorf("%s: %s %d: %w: %w", r.file.Path, place, number, ErrMalformed, why)
		s.First = fmt.Sprintf("%s: %s %d: %v", r.file.Path, place, number, why)
	}
	if s.Documents()%enoughMalformed > 0 {
		return nil
	}
	return t.end(r)
}

// end returns an error if more is malformed than is tolerated.
func (t tally) end(r *Reader) error {
	bad := t.skipped.Documents()
	if r.options.SkipMalformed || bad*toleratedShare <= bad+t.documents {
		return nil
	}
	if bad == 1 {
		return fmt.Errorf("source: %w; correct it, or leave such out with --skip-malformed", t.first)
	}
	return fmt.Errorf("source: %w; so are %d of the %d documents up to here, and 1 in %d is left out at most: correct them, or leave all such out with --skip-malformed",
		t.first, bad, bad+t.documents, toleratedShare)
}

// damaged is the error of a file that cannot be read on.
func (r *Reader) damaged(err error) error {
	return fmt.Errorf("source: %s: %w: %w; get the file again or leave it out", r.file.Path, ErrMalformed, err)
}

// checkText returns what is wrong with a document.
func checkText(document []byte) error {
	switch {
	case len(document) > MaxDocumentBytes:
		return fmt.Errorf("%w: %d bytes, at most %d are accepted", ErrTooLong, len(document), MaxDocumentBytes)
	case !utf8.Valid(document):
		return errNotUTF8
	case bytes.IndexByte(document, 0) >= 0:
		return fmt.Errorf("%w: a NUL byte", errNotUTF8)
	}
	return nil
}
