package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquet reads the rows of one column, page by page. Nothing behind damage is read: a
// page that is wrong leaves no way to tell where the next row is.
func (r *reader) parquet(f *os.File) (err error) {
	// The library panics on some damaged files.
	handed := false // a document is with the caller
	defer func() {
		if p := recover(); p != nil {
			if handed {
				panic(p) // the caller's, not the library's
			}
			err = r.damaged(fmt.Errorf("%v", p))
		}
	}()
	if err := checkFooter(f, r.file.SizeBytes); err != nil {
		return r.damaged(err)
	}
	file, err := parquet.OpenFile(f, r.file.SizeBytes, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(blockBytes))
	if err != nil {
		return r.damaged(err)
	}
	column, err := textColumn(file.Schema(), r.options.field())
	if err == nil {
		err = checkCompression(file.Metadata().RowGroups, column)
	}
	if err != nil {
		return fmt.Errorf("source: %s: %w", r.file.Path, err)
	}
	rows := rows{reader: r, total: max(file.NumRows(), 1), handed: &handed}
	for _, group := range file.RowGroups() {
		if err := rows.pages(group.ColumnChunks()[column].Pages()); err != nil {
			return err
		}
	}
	return nil
}

// parquetMagic begins and ends a file.
const parquetMagic = "PAR1"

// maxFooterBytes bounds the description of a file's columns and row groups.
const maxFooterBytes = 64 << 20

// checkFooter holds the length of the footer against the file's: the library allocates
// what the last bytes of the file say.
func checkFooter(f io.ReaderAt, size int64) error {
	const magic, length = 4, 4
	end := make([]byte, length+magic)
	if size < magic+length+magic {
		return fmt.Errorf("%d bytes are no parquet file", size)
	}
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
		return err
	}
	if string(end[length:]) != parquetMagic {
		return fmt.Errorf("it does not end with %s as a parquet file does: cut off, or another format", parquetMagic)
	}
	footer := int64(binary.LittleEndian.Uint32(end))
	if footer > min(size-magic-length-magic, maxFooterBytes) {
		return fmt.Errorf("a footer of %d bytes in a file of %d, at most %d are accepted", footer, size, maxFooterBytes)
	}
	return nil
}

// textColumn finds the column of a name; dots lead into groups.
func textColumn(schema *parquet.Schema, name string) (int, error) {
	leaf, ok := schema.Lookup(strings.Split(name, ".")...)
	if !ok {
		var names []string
		for _, path := range schema.Columns() {
			names = append(names, strings.Join(path, "."))
		}
		return 0, fmt.Errorf("%w: no column %q; name that of the text with --field, there are %s", ErrMalformed, name, strings.Join(names, ", "))
	}
	if kind := leaf.Node.Type().Kind(); kind != parquet.ByteArray || leaf.MaxRepetitionLevel > 0 {
		return 0, fmt.Errorf("%w: column %q holds %s, no strings; name that of the text with --field", ErrMalformed, name, leaf.Node.Type())
	}
	return leaf.ColumnIndex, nil
}

// checkCompression refuses a column packed with LZ4: where the library unpacks one into
// memory of its own and that has just the right size, it goes on to read what was in the
// page's before; and of a damaged one it asks for twice the memory until there is none.
func checkCompression(groups []format.RowGroup, column int) error {
	for _, group := range groups {
		switch codec := group.Columns[column].MetaData.Codec; codec {
		case format.Lz4Raw, format.Lz4, format.LZO:
			return fmt.Errorf("%w: its text is compressed with %v, which is not read; write it with zstd, snappy or gzip", ErrMalformed, codec)
		}
	}
	return nil
}

// rows hands the values of a column on.
type rows struct {
	reader *reader
	read   int64
	total  int64
	handed *bool
}

func (r *rows) pages(pages parquet.Pages) error {
	defer func() { _ = pages.Close() }() // only read
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.reader.damaged(fmt.Errorf("behind row %d: %w", r.read, err))
		}
		err = r.values(page.Values())
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
}

func (r *rows) values(values parquet.ValueReader) error {
	buf := make([]parquet.Value, 64)
	for {
		n, err := values.ReadValues(buf)
		for _, v := range buf[:n] {
			r.read++
			if err := r.value(v); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.reader.damaged(fmt.Errorf("behind row %d: %w", r.read, err))
		}
	}
}

func (r *rows) value(v parquet.Value) error {
	if v.IsNull() {
		return r.reader.malformed("row", r.read, errors.New("no text but null"))
	}
	document := v.ByteArray()
	if err := checkText(document); err != nil {
		return r.reader.malformed("row", r.read, err)
	}
	// The file is not read from front to end: the share of its rows stands for that.
	r.reader.raw.bytes = int64(float64(r.read) / float64(r.total) * float64(r.reader.file.SizeBytes))
	*r.handed = true
	err := r.reader.give(document)
	*r.handed = false
	return err
}
