package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// crafted makes a Parquet file whose optional column has these pages, each a header and what follows it.
func crafted(t testing.TB, codec format.CompressionCodec, pages ...any) []byte {
	t.Helper()
	type row struct {
		Text *string `parquet:"text,optional"`
	}
	encode := func(v any) []byte {
		encoded, err := thrift.Marshal(new(thrift.CompactProtocol), v)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b)
	if _, err := w.Write([]row{{new(string)}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	like, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	file := []byte(parquetMagic)
	for i := 0; i < len(pages); i += 2 {
		header, body := pages[i].(format.PageHeader), pages[i+1].([]byte)
		header.CompressedPageSize = int32(len(body))
		if header.UncompressedPageSize == 0 {
			header.UncompressedPageSize = int32(len(body))
		}
		file = append(append(file, encode(&header)...), body...)
	}
	metadata := like.Metadata()
	chunk := &metadata.RowGroups[0].Columns[0].MetaData
	chunk.Codec, chunk.DataPageOffset, chunk.DictionaryPageOffset = codec, int64(len(parquetMagic)), 0
	chunk.TotalCompressedSize = int64(len(file) - len(parquetMagic))
	footer := encode(metadata)
	file = binary.LittleEndian.AppendUint32(append(file, footer...), uint32(len(footer)))
	return append(file, parquetMagic...)
}

// run stands for so many values in a few bytes.
func run(count uint64, value byte) []byte { return append(binary.AppendUvarint(nil, count<<1), value) }

// sized puts the length in front.
func sized(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// countedPages claims billions of values in a few bytes, each in its own way.
func countedPages(t testing.TB) map[string][]byte {
	const many = 100_000_000
	v1 := func(values int32, e format.Encoding) format.PageHeader {
		return format.PageHeader{Type: format.DataPage, DataPageHeader: thrift.New(format.DataPageHeader{NumValues: values, Encoding: e, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})}
	}
	v2 := func(values int32, e format.Encoding, levels int) format.PageHeader {
		return format.PageHeader{Type: format.DataPageV2, DataPageHeaderV2: thrift.New(format.DataPageHeaderV2{NumValues: values, NumRows: values, Encoding: e, DefinitionLevelsByteLength: int32(levels)})}
	}
	dictionary := format.PageHeader{Type: format.DictionaryPage, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: 1})}
	deltas := dictionary
	deltas.DictionaryPageHeader.V.Encoding = format.DeltaLengthByteArray
	bitPacked := v1(1, format.Plain)
	bitPacked.DataPageHeader.V.DefinitionLevelEncoding = format.BitPacked
	two := dictionary
	two.Type, two.DictionaryPageHeader.V.NumValues = format.DataPage, 1<<28
	two.DataPageHeader = v1(1, format.RLEDictionary).DataPageHeader
	levels, one, a := slices.Concat(run(many, 1), run(many, 1)), run(1, 1), sized([]byte("a"))
	indexes := append([]byte{1}, run(many, 0)...)
	packed := slices.Concat(sized(levels), a)
	snapped, err := parquet.LookupCompressionCodec(format.Snappy).Encode(nil, packed)
	if err != nil {
		t.Fatal(err)
	}
	inSnappy := v1(1, format.Plain)
	inSnappy.UncompressedPageSize = int32(len(packed))
	var delta []byte
	for _, n := range []uint64{128, 4, many, 0} {
		delta = binary.AppendUvarint(delta, n)
	}
	return map[string][]byte{
		"levels":          crafted(t, format.Uncompressed, v1(1, format.Plain), packed),
		"packed levels":   crafted(t, format.Snappy, inSnappy, snapped),
		"levels of v2":    crafted(t, format.Uncompressed, v2(1, format.Plain, len(levels)), append(levels, a...)),
		"indexes":         crafted(t, format.Uncompressed, dictionary, a, v1(1, format.RLEDictionary), append(sized(one), indexes...)),
		"indexes of v2":   crafted(t, format.Uncompressed, dictionary, a, v2(1, format.RLEDictionary, len(one)), append(one, indexes...)),
		"delta lengths":   crafted(t, format.Uncompressed, v1(1, format.DeltaLengthByteArray), append(sized(one), delta...)),
		"groups":          crafted(t, format.Uncompressed, v1(1, format.Plain), append(sized(append([]byte{0x81, 0x80, 0x04}, make([]byte, 1<<15)...)), a...)),
		"two headers":     crafted(t, format.Uncompressed, two, append(sized(one), indexes...)),
		"dictionary":      crafted(t, format.Uncompressed, deltas, delta),
		"levels of a bit": crafted(t, format.Uncompressed, bitPacked, packed),
	}
}

// TestCountsInPagesAreBounded: a file of a few bytes that claims to hold billions of values is refused without memory for them.
func TestCountsInPagesAreBounded(t *testing.T) {
	for name, content := range countedPages(t) {
		says := "more values in the page than its header says"
		switch name {
		case "two headers":
			says = "with the header of a dictionary"
		case "dictionary":
			says = "encoded as DELTA_LENGTH_BYTE_ARRAY, which is not read"
		case "levels of a bit":
			says = "whose levels are encoded as BIT_PACKED, which is not read"
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := collect(t, write(t, "a.parquet", content), Options{SkipMalformed: true})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("%s: %d MB of memory for a file of %d bytes", name, took>>20, len(content))
		}
	}
}

// TestOneCodecForAColumn: the library unpacks all row groups as the first one is packed.
func TestOneCodecForAColumn(t *testing.T) {
	content, _ := parquetFile(t, 700)
	f := write(t, "a.parquet", content)
	r, err := Open(f, Options{Column: "body"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.table.Metadata().RowGroups[1].Columns[r.column.ColumnIndex].MetaData.Codec = format.Snappy
	if err := r.Documents(func([]byte, int64) error { return nil }); err == nil || !strings.Contains(err.Error(), "row group 1") || !strings.Contains(err.Error(), "compressed with SNAPPY, in the first row group with ZSTD") {
		t.Error(err)
	}
}
