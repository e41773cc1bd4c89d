package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/klauspost/compress/zstd"
)

// Format is how a file holds documents.
type Format int

// The formats.
const (
	Text Format = iota
	JSONLines
	CSV
	Parquet
	Other // found in a folder, and nothing to read
)

// String returns what people call it.
func (f Format) String() string {
	return []string{"text", "JSON Lines", "CSV", "Parquet", "other"}[f]
}

const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
	// byteOrderMark begins files of UTF-8 that some of Windows' programs write.
	byteOrderMark = "\ufeff"
)

// foreign lists how files begin that hold text in a way that is not read, with the remedy.
var foreign = []struct{ magic, what string }{
	{"PK\x03\x04", "a zip archive: unpack it"},
	{"BZh", "packed with bzip2: unpack it, or pack it with zstd or gzip"},
	{"\xfd7zXZ\x00", "packed with xz: unpack it, or pack it with zstd or gzip"},
	{"\x04\x22\x4d\x18", "packed with lz4: unpack it, or pack it with zstd or gzip"},
	{"7z\xbc\xaf", "a 7z archive: unpack it"},
	{"ARROW1", "an Arrow file: write it as Parquet"},
	{"\xff\xff\xff\xff", "an Arrow stream: write it as Parquet"},
	{"\x89HDF", "an HDF5 file: write its text as JSON Lines or Parquet"},
	{"SQLite format 3", "an SQLite database: write its text as JSON Lines or Parquet"},
}

// detect looks at the beginning of the file, unpacks it, and prepares what Documents reads.
func (r *Reader) detect() error {
	r.text = bufio.NewReaderSize(&r.raw, blockBytes)
	if r.options.Plain {
		return nil
	}
	head, _ := r.text.Peek(16) // the error comes again
	r.packed = bytes.HasPrefix(head, []byte(gzipMagic)) || bytes.HasPrefix(head, []byte(zstdMagic))
	if r.packed {
		if err := r.unpackText(head); err != nil {
			return r.damaged(err)
		}
		var err error
		if head, err = r.text.Peek(16); err != nil && !errors.Is(err, io.EOF) {
			return r.damaged(err)
		}
	}
	name := r.name()
	switch {
	case bytes.HasPrefix(head, []byte(parquetMagic)) && r.packed:
		return r.lacking(errors.New("a Parquet file that is packed: unpack it (Parquet packs its columns itself)"))
	case bytes.HasPrefix(head, []byte(parquetMagic)):
		return r.openParquet()
	case name == ".parquet":
		return r.damaged(fmt.Errorf("it does not begin with %s as a Parquet file does", parquetMagic))
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return r.lacking(errors.New(f.what))
		}
	}
	if mark, _ := r.text.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = r.text.Discard(len(byteOrderMark)) // it has just been read
	}
	return r.detectText(name)
}

// name returns the extension that names a format, in lower case.
func (r *Reader) name() string {
	name := strings.ToLower(filepath.Base(r.file.Path))
	if r.packed {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	return filepath.Ext(name)
}

// lacking refuses a file that was named; one that was found is passed over.
func (r *Reader) lacking(why error) error {
	if r.file.Named {
		return fmt.Errorf("source: %s: %w: %w", r.file.Path, ErrMalformed, why)
	}
	r.format = Other
	r.tally.skipped.Files++
	return nil
}

// noColumn refuses a file that was named and lacks the column; one that was found is passed over, which the report says.
func (r *Reader) noColumn(columns []string) error {
	err := fmt.Errorf("%s: %w %q; columns: %s. Name that of the text with --column", r.file.Path, ErrNoColumn, r.options.TextColumn(), listed(columns))
	if r.file.Named {
		return fmt.Errorf("source: %w", err)
	}
	r.format = Other
	r.tally.skipped.FilesNoColumn++
	r.tally.skipped.First = err.Error()
	return nil
}

// listed prints names that a file may have made up.
func listed(names []string) string {
	const most, longest = 40, 60
	if len(names) == 0 {
		return "none"
	}
	var parts []string
	for _, n := range names[:min(len(names), most)] {
		parts = append(parts, printable(n, longest))
	}
	if len(names) > most {
		parts = append(parts, "...")
	}
	return strings.Join(parts, ", ")
}

// printable returns at most so many characters of what a file says, without those that a terminal would obey.
func printable[T string | []byte](text T, most int) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, fmt.Sprintf("%.*s", most, string(text)))
}

// unpackText has text read what the file unpacks to.
func (r *Reader) unpackText(head []byte) error {
	packed := r.text
	var unpacked io.Reader
	if bytes.HasPrefix(head, []byte(gzipMagic)) {
		z, err := gzip.NewReader(packed)
		if err != nil {
			return err
		}
		unpacked = z
	} else {
		// One goroutine, and a window as large as zstd's tool accepts by default.
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return err
		}
		unpacked, r.unpack = z, z.Close
	}
	r.text = bufio.NewReaderSize(&unpacker{Reader: unpacked, packed: &r.raw}, blockBytes)
	return nil
}

// unpacker refuses files that unpack to far more than text does.
type unpacker struct {
	io.Reader
	packed *counter
	bytes  int64
}

func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if u.bytes += int64(n); u.bytes > mostUnpacked(u.packed.bytes) {
		return 0, errBomb(u.packed.bytes)
	}
	return n, err
}

// mostUnpacked bounds what so many bytes unpack to; text packs to a tenth or so.
func mostUnpacked(packed int64) int64 { return 256<<20 + 500*packed }

func errBomb(packed int64) error {
	return fmt.Errorf("its first %d bytes unpack to more than %d: no text packs so well", packed, mostUnpacked(packed))
}

// detectText tells formats of text apart: by the name, or by a first record that has the column.
func (r *Reader) detectText(name string) error {
	head, err := r.text.Peek(blockBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return r.damaged(err)
	}
	whole := err != nil // head is all of the file
	first, ended := firstLine(head)
	if !ended && !whole && bytes.HasPrefix(first, []byte("{")) {
		if first, err = r.longLine(); err != nil {
			return r.damaged(err)
		}
		head, _ = r.text.Peek(blockBytes) // it has just been read
	}
	fields, object := jsonFields(first)
	if name == ".jsonl" || name == ".ndjson" {
		r.format = JSONLines
		if object && len(fields) > 0 && !slices.Contains(fields, r.options.TextColumn()) {
			return r.noColumn(fields)
		}
		return nil
	}
	if object && slices.Contains(fields, r.options.TextColumn()) {
		r.format, r.guessed = JSONLines, true
		return nil
	} else if name == ".json" && r.file.Named {
		return r.refuseJSON(head, fields, object)
	}
	h, ok := csvHeader(head, whole, r.options.TextColumn())
	switch {
	case name == ".csv" || name == ".tsv":
		r.format = CSV
		if h.column < 0 {
			return r.noColumn(h.names)
		}
	case ok && h.column >= 0:
		r.format, r.guessed = CSV, true
	}
	return nil
}

// refuseJSON says how a file of JSON that is not one object a line becomes one. Text that is to be learned as it stands can have another name.
func (r *Reader) refuseJSON(head []byte, fields []string, object bool) error {
	if object {
		return r.noColumn(fields)
	}
	filter := "."
	if trimmed := bytes.TrimSpace(head); len(trimmed) > 0 && trimmed[0] == '[' {
		filter = ".[]"
	}
	return fmt.Errorf("source: %s: %w: one object a line is read: jq -c '%s' %s > %s.jsonl makes such a file; to learn the JSON itself, call it .txt",
		r.file.Path, ErrMalformed, filter, filepath.Base(r.file.Path), strings.TrimSuffix(filepath.Base(r.file.Path), filepath.Ext(r.file.Path)))
}

// firstLine returns the first line with anything in it, and whether head has its end.
func firstLine(head []byte) (line []byte, ended bool) {
	line, _, ended = bytes.Cut(bytes.TrimLeft(head, jsonSpace), []byte("\n"))
	return line, ended
}

// longLine returns a first line that is longer than a block, up to maxLineBytes, and has it read again by those who read the text.
func (r *Reader) longLine() ([]byte, error) {
	var read []byte
	for len(read) <= maxLineBytes {
		part, err := r.text.ReadSlice('\n')
		read = append(read, part...)
		if errors.Is(err, io.EOF) || err == nil && len(bytes.TrimSpace(read)) > 0 {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	r.text = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(read), r.text), blockBytes)
	line, _ := firstLine(read)
	return line, nil
}

// jsonFields returns the names of an object's fields, and whether the line is an object.
func jsonFields(line []byte) (names []string, object bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
		return nil, false
	}
	eachField(line, func(name, _ []byte) {
		if key, ok := unquoted(name); ok && len(names) <= mostFields {
			names = append(names, key)
		}
	})
	return names, true
}

// mostFields are listed, or accepted in a row of CSV.
const mostFields = 10_000
