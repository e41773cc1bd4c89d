package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// header is the first row of a CSV file.
type header struct {
	separator byte
	names     []string
	column    int // of the text; -1 without
}

// csvHeader reads the header in the beginning of a file: with the separator under which it has the column, else with the one that makes most
// columns of it. It reports whether this must be CSV whatever its name is: it has several columns, and so have most rows in head.
func csvHeader(head []byte, whole bool, column string) (best header, sure bool) {
	best = header{separator: ',', column: -1}
	for _, separator := range []byte{',', '\t', ';'} {
		rows := csvRows{lines: bufio.NewReader(bytes.NewReader(head)), separator: separator}
		if rows.next() != nil || !utf8.Valid(rows.record) {
			continue
		}
		h := header{separator: separator}
		for i := range rows.fields {
			h.names = append(h.names, string(rows.field(i)))
		}
		h.column = slices.Index(h.names, column)
		if h.column >= 0 {
			return h, len(h.names) > 1 && rows.mostHave(len(h.names), func() bool { return !whole && rows.begin+len(rows.record) >= len(head) })
		}
		if len(h.names) > len(best.names) {
			best = h
		}
	}
	return best, false
}

// mostHave reports whether most of the rows that follow, and one at least, have so many fields. One that may have been cut off counts
// where there is no other.
func (c *csvRows) mostHave(fields int, cut func() bool) bool {
	with, without := 0, 0
	for {
		err := c.next()
		switch {
		case cut() && with+without == 0:
			return true
		case err != nil || cut():
			return with > without
		case len(c.fields) == fields && c.flaw == nil:
			with++
		default:
			without++
		}
	}
}

// csv reads the rows of a CSV file (RFC 4180).
func (r *Reader) csv() error {
	head, err := r.text.Peek(blockBytes)
	h, _ := csvHeader(head, err != nil, r.options.TextColumn())
	rows := csvRows{lines: r.text, separator: h.separator}
	for n := 0; ; n++ {
		err := rows.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return r.damaged(err)
		case n == 0:
			continue // the header
		}
		document, err := rows.document(h)
		if err != nil {
			err = r.malformed("line", rows.line, err)
		} else {
			err = r.give(document)
		}
		if err != nil {
			return err
		}
	}
}

// csvRows reads records, which may have many lines.
type csvRows struct {
	lines     *bufio.Reader
	separator byte

	line   int64 // the record's first one, from 1
	ended  int64 // lines up to the end of the record
	begin  int   // bytes before the record
	record []byte
	fields []csvField
	flaw   error // in the record
	buf    []byte
}

// csvField is a part of a record.
type csvField struct {
	begin, end int
	quotes     bool // two of them stand for one
}

// next reads a record with anything in it. io.EOF means that there is none left; any other error that no further one can be found.
func (c *csvRows) next() error {
	for {
		c.begin += len(c.record)
		c.record, c.fields, c.flaw, c.line = c.record[:0], c.fields[:0], nil, c.ended+1
		if err := c.read(); err != nil {
			return err
		}
		if len(bytes.TrimRight(c.record, "\r\n")) > 0 {
			return nil
		}
	}
}

// read reads lines up to one that ends outside of quotes.
func (c *csvRows) read() error {
	open := false // in quotes
	for {
		var err error
		c.buf, err = readLine(c.lines, c.buf)
		switch {
		case errors.Is(err, io.EOF) && open:
			return fmt.Errorf("the quote that opens a field in line %d is not closed up to the end of the file", c.line)
		case errors.Is(err, io.EOF):
			return err
		case errors.Is(err, ErrTooLong) || err == nil && len(c.record)+len(c.buf) > maxLineBytes:
			return fmt.Errorf("the row from line %d is over %d bytes: is a quote there not closed?", c.line, maxLineBytes)
		case err != nil:
			return fmt.Errorf("line %d: %w", c.ended+1, err)
		}
		c.ended++
		from := len(c.record)
		c.record = append(c.record, c.buf...)
		if open = c.split(from, open); !open {
			return nil
		}
	}
}

// split finds the fields of the record in the bytes from there on, which end with a line. It reports whether the last field is open: in
// quotes, and to go on in the next line.
func (c *csvRows) split(from int, open bool) bool {
	end := from + len(bytes.TrimRight(c.record[from:], "\r\n"))
	at := from
	if !open {
		if end == at {
			return false // a blank line
		}
		at, open = c.start(at, end)
	}
	for {
		if open {
			if at, open = c.inQuotes(at); open {
				return true
			}
			if at < end && c.record[at] != c.separator && c.flaw == nil {
				c.flaw = errors.New("text between a closing quote and the end of the field")
			}
		}
		next := bytes.IndexByte(c.record[min(at, end):end], c.separator)
		f := &c.fields[len(c.fields)-1]
		if next < 0 {
			if f.end < 0 {
				f.end = end
			}
			return false
		}
		at += next
		if f.end < 0 {
			f.end = at
		}
		at, open = c.start(at+1, end)
	}
}

// start begins a field, and reports whether it is in quotes.
func (c *csvRows) start(at, end int) (int, bool) {
	if len(c.fields) == mostFields { // the last one takes the rest
		c.flaw = fmt.Errorf("more than %d fields", mostFields)
		c.fields = c.fields[:mostFields-1]
	}
	if at < end && c.record[at] == '"' {
		c.fields = append(c.fields, csvField{begin: at + 1, end: -1})
		return at + 1, true
	}
	c.fields = append(c.fields, csvField{begin: at, end: -1})
	return at, false
}

// inQuotes looks for the end of a field in quotes, and returns the place behind the quote; open reports that it is not in the record yet.
func (c *csvRows) inQuotes(at int) (behind int, open bool) {
	f := &c.fields[len(c.fields)-1]
	for {
		quote := bytes.IndexByte(c.record[at:], '"')
		if quote < 0 {
			return at, true
		}
		at += quote + 1
		if at == len(c.record) || c.record[at] != '"' {
			f.end = at - 1
			return at, false
		}
		f.quotes = true
		at++
	}
}

// field returns the text of a field, without quotes.
func (c *csvRows) field(i int) []byte {
	f := c.fields[i]
	text := c.record[f.begin:f.end]
	if f.quotes {
		text = bytes.ReplaceAll(text, []byte(`""`), []byte(`"`))
	}
	return text
}

// document returns the text of a record.
func (c *csvRows) document(h header) ([]byte, error) {
	if c.flaw != nil {
		return nil, c.flaw
	}
	if len(c.fields) != len(h.names) {
		return nil, fmt.Errorf("%d fields, the header has %d", len(c.fields), len(h.names))
	}
	document := c.field(h.column)
	return document, checkText(document)
}
