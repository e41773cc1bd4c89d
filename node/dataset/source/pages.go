package source

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxPageBytes bounds a page once it is unpacked; the library has all of it in memory.
	maxPageBytes = 1 << 30
	// maxPageValues bounds the rows of a page, of which the library keeps tables.
	maxPageValues = 1 << 24
	// smallHeaderBytes are enough for most headers of pages; longer ones than maxHeaderBytes are refused.
	smallHeaderBytes = 4 << 10
	maxHeaderBytes   = 1 << 20
	// gzipMost is how much a byte of gzip unpacks to at most.
	gzipMost = 1032
	// zstdBlock is how much a block of zstd unpacks to at most.
	zstdBlock = 128 << 10
)

// errUnread: the file is as its format wants it, and is not read all the same.
var errUnread = errors.New("the text is")

// checkPages looks at the pages of a column in a row group before the library does, which allocates what they say and unpacks what they
// hold without a bound. Values of the column may be missing at so many levels.
func checkPages(f io.ReaderAt, size int64, chunk *format.ColumnMetaData, levels int) error {
	switch chunk.Codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Zstd:
	default:
		// LZ4: where the library unpacks one into memory of its own and that has just the right size, it goes on to read what was in the
		// page's before; and of a damaged one it asks for twice the memory until there is none. Brotli: nothing bounds what it unpacks to.
		return fmt.Errorf("%w compressed with %v, which is not read: write it with zstd, snappy or gzip", errUnread, chunk.Codec)
	}
	at := chunk.DataPageOffset
	if d := chunk.DictionaryPageOffset; d != 0 {
		at = d
	}
	if chunk.TotalCompressedSize < 0 || at < 0 || at > size || chunk.TotalCompressedSize > size-at {
		return fmt.Errorf("its %d bytes from byte %d on are not in the file, which has %d", chunk.TotalCompressedSize, at, size)
	}
	w := pageWalk{file: f, codec: chunk.Codec, levels: levels, at: at, end: at + chunk.TotalCompressedSize}
	for w.at < w.end {
		if err := w.next(); err != nil {
			return fmt.Errorf("page at byte %d: %w", w.at, err)
		}
	}
	return nil
}

// pageWalk goes from page to page.
type pageWalk struct {
	file    io.ReaderAt
	codec   format.CompressionCodec
	levels  int
	at, end int64
	buf     []byte // of a header
	page    []byte
	plain   []byte // the page, unpacked
}

func (w *pageWalk) next() error {
	header, length, err := w.header(smallHeaderBytes)
	if err != nil { // it may have long statistics
		header, length, err = w.header(maxHeaderBytes)
	}
	if err != nil {
		return err
	}
	body := w.at + int64(length)
	if err := checkPage(header, w.end-body); err != nil {
		return err
	}
	unpacked, err := w.unpacked(body, header)
	if err == nil && unpacked > maxPageBytes {
		err = fmt.Errorf("it unpacks to more than %d bytes", maxPageBytes)
	}
	if err == nil {
		err = w.checkCounts(body, header)
	}
	if err != nil {
		return err
	}
	w.at = body + int64(header.CompressedPageSize)
	return nil
}

// header decodes the header of a page, of at most so many bytes.
func (w *pageWalk) header(most int64) (h *format.PageHeader, length int, err error) {
	most = min(most, w.end-w.at)
	w.buf = slices.Grow(w.buf[:0], int(most))[:most]
	if _, err := w.file.ReadAt(w.buf, w.at); err != nil {
		return nil, 0, err
	}
	if err := checkThrift(w.buf); err != nil {
		return nil, 0, err
	}
	h = new(format.PageHeader)
	r := new(thrift.CompactProtocol).NewReaderFromBytes(w.buf)
	err = thrift.NewDecoder(r).Decode(h)
	return h, r.BytesRead(), err
}

// checkPage bounds what a header says of a page, behind which there are so many bytes.
func checkPage(h *format.PageHeader, left int64) error {
	values := h.DataPageHeader.V.NumValues
	encoding := h.DataPageHeader.V.Encoding
	dictionary := h.Type == format.DictionaryPage
	switch h.Type {
	case format.DataPageV2:
		values, encoding = h.DataPageHeaderV2.V.NumValues, h.DataPageHeaderV2.V.Encoding
	case format.DictionaryPage:
		values, encoding = h.DictionaryPageHeader.V.NumValues, h.DictionaryPageHeader.V.Encoding
	}
	switch {
	case h.DictionaryPageHeader.Valid && !dictionary: // the library may take it for one
		return fmt.Errorf("a page of type %v with the header of a dictionary", h.Type)
	case h.CompressedPageSize < 0 || int64(h.CompressedPageSize) > left:
		return fmt.Errorf("%d bytes, of which %d are in the file", h.CompressedPageSize, left)
	case h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPageBytes:
		return fmt.Errorf("%w in a page that unpacks to %d bytes, at most %d are accepted: write the file with smaller pages", errUnread, h.UncompressedPageSize, maxPageBytes)
	case values < 0 || values > maxPageValues:
		return fmt.Errorf("%w in a page of %d rows, at most %d are accepted: write the file with smaller pages", errUnread, values, maxPageValues)
	case encoding == format.DeltaByteArray || dictionary && encoding == format.DeltaLengthByteArray: // a few bytes may stand for any number of values
		return fmt.Errorf("%w encoded as %v, which is not read: write it as PLAIN or with a dictionary", errUnread, encoding)
	}
	return nil
}

// unpacked bounds what the library makes of a page, whatever its header says.
func (w *pageWalk) unpacked(at int64, h *format.PageHeader) (int64, error) {
	packed := int64(h.CompressedPageSize)
	if h.Type == format.DataPageV2 { // the levels in front are not packed
		repetitions, definitions := int64(h.DataPageHeaderV2.V.RepetitionLevelsByteLength), int64(h.DataPageHeaderV2.V.DefinitionLevelsByteLength)
		levels := repetitions + definitions
		if min(repetitions, definitions) < 0 || levels > packed {
			return 0, fmt.Errorf("levels of %d bytes in a page of %d", levels, packed)
		}
		at, packed = at+levels, packed-levels
		if compressed := h.DataPageHeaderV2.V.IsCompressed; compressed.Valid && !compressed.V {
			return packed, nil
		}
	}
	section := io.NewSectionReader(w.file, at, packed)
	switch w.codec {
	case format.Snappy:
		return snappyLength(section)
	case format.Gzip:
		return gzipLength(section, packed)
	case format.Zstd:
		return zstdLength(section, packed)
	}
	return packed, nil
}

// snappyLength returns the length in front of a block, which the decoder allocates.
func snappyLength(block io.Reader) (int64, error) {
	var head [binary.MaxVarintLen64]byte
	n, err := io.ReadFull(block, head[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return 0, err
	}
	length, _ := binary.Uvarint(head[:n]) // the decoder refuses what is none
	return int64(min(length, maxPageBytes+1)), nil
}

// gzipLength unpacks a page that is large enough to be too large.
func gzipLength(page io.Reader, packed int64) (int64, error) {
	if packed*gzipMost <= maxPageBytes {
		return packed * gzipMost, nil
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(page, blockBytes))
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, io.LimitReader(z, maxPageBytes+1))
}

// zstdLength adds up the most that the blocks of all frames unpack to (RFC 8878, section 3.1.1).
func zstdLength(page io.ReaderAt, packed int64) (most int64, err error) {
	var buf [zstd.HeaderMaxSize]byte
	for at := int64(0); at < packed && most <= maxPageBytes; {
		n, err := page.ReadAt(buf[:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		var frame zstd.Header
		if err := frame.Decode(buf[:n]); err != nil {
			return 0, err
		}
		if at += int64(frame.HeaderSize); frame.Skippable {
			at += int64(frame.SkippableSize)
			continue
		}
		for last := false; !last; {
			if _, err := page.ReadAt(buf[:3], at); err != nil {
				return 0, err
			}
			block := uint32(buf[0]) | uint32(buf[1])<<8 | uint32(buf[2])<<16
			size := int64(block >> 3)
			switch at += 3; block >> 1 & 3 {
			case 0: // as it is
				at, most = at+size, most+size
			case 1: // one byte, repeated
				at, most = at+1, most+size
			default:
				at, most = at+size, most+zstdBlock
			}
			last = block&1 != 0
		}
		if frame.HasCheckSum {
			at += 4
		}
	}
	return most, nil
}
