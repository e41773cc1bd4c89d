package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// openParquet reads what the file says of itself. The library panics on some damaged files.
func (r *Reader) openParquet() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.damaged(fmt.Errorf("%v", p))
		}
	}()
	if err := checkFooter(r.disk, r.file.SizeBytes); err != nil {
		return r.damaged(err)
	}
	r.table, err = parquet.OpenFile(r.disk, r.file.SizeBytes, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(blockBytes))
	if err != nil {
		return r.damaged(err)
	}
	r.format = Parquet
	r.column, err = r.textColumn(r.table.Schema())
	return err
}

// parquet reads the rows of one column, page by page. Nothing behind damage is read: a
// page that is wrong leaves no way to tell where the next row is.
func (r *Reader) parquet() (err error) {
	handed := false // a document is with the caller
	defer func() {
		if p := recover(); p != nil {
			if handed {
				panic(p) // the caller's, not the library's
			}
			err = r.damaged(fmt.Errorf("%v", p))
		}
	}()
	rows := rows{reader: r, total: max(r.table.NumRows(), 1), handed: &handed}
	groups := r.table.Metadata().RowGroups
	for i, group := range r.table.RowGroups() {
		chunk := &groups[i].Columns[r.column.ColumnIndex].MetaData
		err := checkPages(r.disk, r.file.SizeBytes, chunk, r.column.MaxDefinitionLevel)
		if first := groups[0].Columns[r.column.ColumnIndex].MetaData.Codec; chunk.Codec != first { // the library unpacks all as the first one
			err = fmt.Errorf("%w compressed with %v, in the first row group with %v: write it with one of them", errUnread, chunk.Codec, first)
		}
		if err != nil {
			err = fmt.Errorf("row group %d, from row %d: %w", i, rows.read+1, err)
			if errors.Is(err, errUnread) {
				return fmt.Errorf("source: %s: %w: %w", r.file.Path, ErrMalformed, err)
			}
			return r.damaged(err)
		}
		if err := rows.pages(group.ColumnChunks()[r.column.ColumnIndex].Pages()); err != nil {
			return err
		}
	}
	return nil
}

// parquetMagic begins and ends a file.
const parquetMagic = "PAR1"

// maxFooterBytes bounds the description of a file's columns and row groups.
const maxFooterBytes = 32 << 20

// checkFooter looks at the end of the file before the library does, which allocates what it says.
func checkFooter(f io.ReaderAt, size int64) error {
	const magic, length = 4, 4
	end := make([]byte, length+magic)
	if size < magic+length+magic {
		return fmt.Errorf("%d bytes are no Parquet file", size)
	}
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
		return err
	}
	if string(end[length:]) != parquetMagic {
		return fmt.Errorf("it does not end with %s as a Parquet file does: cut off, or another format", parquetMagic)
	}
	footer := int64(binary.LittleEndian.Uint32(end))
	if footer > min(size-magic-length-magic, maxFooterBytes) {
		return fmt.Errorf("a footer of %d bytes in a file of %d, at most %d are accepted", footer, size, maxFooterBytes)
	}
	encoded := make([]byte, footer)
	if _, err := f.ReadAt(encoded, size-magic-length-footer); err != nil {
		return err
	}
	if err := checkThrift(encoded); err != nil {
		return fmt.Errorf("its footer: %w", err)
	}
	return nil
}

// textColumn finds the column of the text; dots lead into groups.
func (r *Reader) textColumn(schema *parquet.Schema) (parquet.LeafColumn, error) {
	name := r.options.TextColumn()
	leaf, ok := schema.Lookup(strings.Split(name, ".")...)
	if !ok {
		var names []string
		for _, path := range schema.Columns() {
			names = append(names, strings.Join(path, "."))
		}
		return leaf, r.noColumn(names)
	}
	if kind := leaf.Node.Type().Kind(); kind != parquet.ByteArray || leaf.MaxRepetitionLevel > 0 {
		return leaf, fmt.Errorf("source: %s: %w: column %q holds %s, no text; name that of the text with --column", r.file.Path, ErrMalformed, name, leaf.Node.Type())
	}
	return leaf, nil
}

// rows hands the values of a column on.
type rows struct {
	reader *Reader
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
		return r.reader.malformed("row", r.read, errNull)
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
