package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// errCounts: a page holds more values than its header says.
var errCounts = errors.New("more values in the page than its header says")

// plainDictionary stands for RLE_DICTIONARY in pages of older writers; the library marks its own name for it as deprecated.
const plainDictionary = format.Encoding(2)

// checkCounts looks at the counts inside a page, whose size has been checked. A few bytes there may stand for billions of values, and the
// library makes as many as they say.
func (w *pageWalk) checkCounts(at int64, h *format.PageHeader) error {
	c := counts{values: h.DataPageHeader.V.NumValues, encoding: h.DataPageHeader.V.Encoding, levels: h.DataPageHeader.V.DefinitionLevelEncoding}
	v2 := h.DataPageHeaderV2.V
	if h.Type == format.DataPageV2 {
		c = counts{values: v2.NumValues, encoding: v2.Encoding, levels: format.RLE}
	}
	width := bits.Len(uint(w.levels))
	switch {
	case h.Type == format.DictionaryPage || width == 0 && c.encoding == format.Plain:
		return nil // no counts
	case width > 0 && c.levels != format.RLE:
		return fmt.Errorf("%w in a page whose levels are encoded as %v, which is not read: write them as RLE", errUnread, c.levels)
	}
	w.page = slices.Grow(w.page[:0], int(h.CompressedPageSize))[:h.CompressedPageSize]
	if _, err := w.file.ReadAt(w.page, at); err != nil {
		return err
	}
	if h.Type != format.DataPageV2 {
		data, err := w.unpack(w.page)
		if err != nil || width == 0 {
			return errors.Join(err, c.checkData(data))
		}
		if len(data) < 4 {
			return io.ErrUnexpectedEOF
		}
		length := uint64(binary.LittleEndian.Uint32(data))
		if data = data[4:]; length > uint64(len(data)) {
			return io.ErrUnexpectedEOF
		}
		return errors.Join(c.checkRuns(data[:length], width), c.checkData(data[length:]))
	}
	data := w.page[v2.RepetitionLevelsByteLength:]                                             // of which a column of texts has none
	levels, data := data[:v2.DefinitionLevelsByteLength], data[v2.DefinitionLevelsByteLength:] // the levels are not packed
	if width > 0 {
		if err := c.checkRuns(levels, width); err != nil {
			return err
		}
	}
	if c.encoding == format.Plain {
		return nil
	}
	if !v2.IsCompressed.Valid || v2.IsCompressed.V {
		var err error
		if data, err = w.unpack(data); err != nil {
			return err
		}
	}
	return c.checkData(data)
}

// unpack returns what a page is unpacked to, up to the next call.
func (w *pageWalk) unpack(data []byte) (_ []byte, err error) {
	if w.codec == format.Uncompressed {
		return data, nil
	}
	w.plain, err = parquet.LookupCompressionCodec(w.codec).Decode(w.plain[:cap(w.plain)], data)
	return w.plain, err
}

// counts compares the counts in a page with those of its header. What ends too early the library finds itself.
type counts struct {
	values           int32
	encoding, levels format.Encoding
}

// checkData looks at what is behind the levels.
func (c counts) checkData(data []byte) error {
	switch c.encoding {
	case plainDictionary, format.RLEDictionary:
		if len(data) > 0 {
			return c.checkRuns(data[1:], int(data[0]))
		}
	case format.DeltaLengthByteArray: // the size of blocks, how many parts they have, how many values
		var header [3]uint64
		for i := range header {
			n := 0
			if header[i], n = binary.Uvarint(data); n <= 0 {
				return nil
			}
			data = data[n:]
		}
		if header[2] > uint64(c.values) {
			return errCounts
		}
	}
	return nil
}

// checkRuns adds up runs of values of some bits: one that is repeated, or groups of 8, of which the last may be filled up.
func (c counts) checkRuns(runs []byte, width int) error {
	left := uint64(c.values) + 7
	for len(runs) > 0 {
		head, n := binary.Uvarint(runs)
		if n <= 0 {
			return nil
		}
		count, size := head>>1, uint64(width+7)/8
		if count > left {
			return errCounts
		}
		if count == 0 {
			size = 0 // as the library has it
		}
		if head&1 != 0 {
			count, size = 8*count, count*uint64(width)
		}
		if count > left {
			return errCounts
		}
		left -= count
		runs = runs[n:]
		runs = runs[min(size, uint64(len(runs))):]
	}
	return nil
}
