package source

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
)

// TestFormatIsToldByContent: names may lie, or say nothing.
func TestFormatIsToldByContent(t *testing.T) {
	table, _ := parquetFile(t, 10)
	lines := []byte(`{"text":"a"}` + "\n" + `{"text":"b"}` + "\n")
	for _, c := range []struct {
		name    string
		content []byte
		want    Format
	}{
		{"a.parquet", table, Parquet},
		{"0000", table, Parquet},
		{"a.csv", table, Parquet},
		{"a.txt", lines, JSONLines},
		{"a.json", lines, JSONLines},
		{"data", gzipped(t, lines), JSONLines},
		{"a.jsonl", zstdded(t, lines), JSONLines},
		{"a.txt.gz", lines, JSONLines},
		{"a.txt", []byte(`{"body":"is no text to train on"}`), Text},
		{"a.go", []byte("package a\n"), Text},
		{"plain.txt.zst", []byte("plain"), Text},
		{"a.tsv", []byte("text\tx\n"), CSV},
	} {
		r, err := Open(write(t, c.name, c.content), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r.Format() != c.want {
			t.Errorf("%s is %v, want %v", c.name, r.Format(), c.want)
		}
		r.Close()
	}
}

// TestLongFirstRecord: a record that is longer than what is looked at first tells the format as a short one does.
func TestLongFirstRecord(t *testing.T) {
	long := strings.Repeat("word ", blockBytes/4)
	lines := []byte(fmt.Sprintf("\n{\"ids\":[%s1],\"text\":%q}\n{\"text\":\"b\"}\n", strings.Repeat("1,", blockBytes), long))
	for _, name := range []string{"a.txt", "a.json", "a.jsonl", "a"} {
		for _, content := range [][]byte{lines, gzipped(t, lines)} {
			if got, _, err := collect(t, write(t, name, content), Options{}); err != nil || !slices.Equal(got, []string{long, "b"}) {
				t.Errorf("%s: %d documents, %v; want the 2 of the lines", name, len(got), err)
			}
		}
		f := write(t, name, lines)
		f.Named = false
		got, skipped, err := collect(t, f, Options{Column: "body"})
		switch {
		case err != nil:
			t.Error(err)
		case name == "a.jsonl" && skipped.FilesNoColumn != 1:
			t.Errorf("%s without the column: %d documents, %v", name, len(got), skipped)
		case name != "a.jsonl" && !slices.Equal(got, []string{string(lines)}):
			t.Errorf("%s without the column: %d documents, want its text as it is", name, len(got))
		}
	}
}

// TestTerminalsAreSafe: what errors and reports quote of a file has nothing in it that a terminal obeys.
func TestTerminalsAreSafe(t *testing.T) {
	const clear = "\x1b[2J\u009b2J\u202e"
	for name, content := range map[string]string{
		"a.json":  `{"` + clear + `":1}`,
		"a.jsonl": `{"` + clear + `":1}`,
		"b.jsonl": `{"text":1}` + "\n" + `"` + "\u009b2J\u202e" + `"`,
		"c.jsonl": `{"text":["` + "\u009b2J\u202e" + `"]}`,
		"a.csv":   clear + ",b\n1,2\n",
	} {
		_, _, err := collect(t, write(t, name, []byte(content)), Options{})
		if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// TestOtherFormats: what was named and is not read is refused with the way out; what was found is passed over.
func TestOtherFormats(t *testing.T) {
	table, _ := parquetFile(t, 10)
	for _, c := range []struct {
		name, content, says string
		text                bool // where it was found
	}{
		{"a.zip", "PK\x03\x04rest", "a zip archive: unpack it", false},
		{"a.txt", "\xfd7zXZ\x00", "packed with xz", false},
		{"a.arrow", "ARROW1\x00\x00", "write it as Parquet", false},
		{"a.parquet.gz", string(gzipped(t, table)), "a Parquet file that is packed: unpack it", false},
		{"a.json", `[{"text":"x"}]`, "jq -c '.[]' a.json > a.jsonl", true},
		{"a.json", "{\n \"text\": \"x\"\n}", "jq -c '.' a.json", true},
		{"a.json", `{"body":"x"}`, `no such column "text"; columns: body`, true},
	} {
		f := write(t, c.name, []byte(c.content))
		if _, err := Open(f, Options{}); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		f.Named = false
		got, skipped, err := collect(t, f, Options{})
		if err != nil || c.text != (len(got) == 1) || !c.text && skipped.Files != 1 {
			t.Errorf("%s found: %q, %+v, %v", c.name, got, skipped, err)
		}
	}
}

// TestBombs: a small file that claims or unpacks to very much is refused before there is memory for it.
func TestBombs(t *testing.T) {
	var zeros bytes.Buffer
	w, err := gzip.NewWriterLevel(&zeros, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 { // of 1 MiB
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	names := []string{"a.txt", "a.jsonl", "a.csv"}
	if testing.Short() {
		names = names[:1]
	}
	for _, name := range names {
		_, err := Read(write(t, name, zeros.Bytes()), Options{Separator: BlankLine, SkipMalformed: true}, func([]byte, int64) error { return nil })
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "no text packs so well") && !strings.Contains(err.Error(), "is a quote there not closed?") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// repeated is a frame of zstd whose blocks are one byte, repeated.
func repeated(blocks int) []byte {
	frame := []byte("\x28\xb5\x2f\xfd\x00\x58")
	for i := range blocks {
		head := uint32(128<<10)<<3 | 1<<1
		if i == blocks-1 {
			head |= 1
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16), 'x')
	}
	return frame
}

func TestPagesAreMeasuredBeforeTheyAreUnpacked(t *testing.T) {
	text := []byte(strings.Repeat("some words ", 50_000))
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedBestCompression} {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(level == zstd.SpeedFastest))
		if err != nil {
			t.Fatal(err)
		}
		packed := z.EncodeAll(text, z.EncodeAll(text, nil)) // two frames
		if n, err := zstdLength(bytes.NewReader(packed), int64(len(packed))); err != nil || n < 2*int64(len(text)) || n > 4*int64(len(text))+2*zstdBlock {
			t.Errorf("zstd: at most %d, %v; %d were packed", n, err, 2*len(text))
		}
	}
	bomb := repeated(10_000)
	if n, err := zstdLength(bytes.NewReader(bomb), int64(len(bomb))); err != nil || n <= maxPageBytes {
		t.Errorf("a bomb of %d bytes: %d, %v", len(bomb), n, err)
	}
	if n, err := snappyLength(bytes.NewReader(binary.AppendUvarint(nil, 1<<40))); err != nil || n <= maxPageBytes {
		t.Errorf("snappy: %d, %v", n, err)
	}
	packed := gzipped(t, text)
	if n, err := gzipLength(bytes.NewReader(packed), int64(len(packed))); err != nil || n < int64(len(text)) || n > maxPageBytes {
		t.Errorf("gzip: %d, %v", n, err)
	}
	if n, err := gzipLength(bytes.NewReader(packed), 2<<20); err != nil || n != int64(len(text)) {
		t.Errorf("gzip that may be too large: %d, %v, want %d", n, err, len(text))
	}
}

// TestParquetCodecs reads every codec and encoding that is not refused.
func TestParquetCodecs(t *testing.T) {
	type row struct {
		Plain  string  `parquet:"plain"`
		Snappy string  `parquet:"snappy,snappy,dict"`
		Gzip   string  `parquet:"gzip,gzip"`
		Zstd   string  `parquet:"zstd,zstd,dict"`
		Brotli string  `parquet:"brotli,brotli"`
		Length string  `parquet:"length,delta"`
		Maybe  *string `parquet:"maybe,optional,snappy,dict"`
		Null   *string `parquet:"null,optional,gzip"`
	}
	for _, version := range []int{1, 2} {
		var b bytes.Buffer
		w := parquet.NewGenericWriter[row](&b, parquet.DataPageVersion(version), parquet.MaxRowsPerRowGroup(100), parquet.PageBufferSize(500))
		var want []string
		for i := range 300 {
			text := fmt.Sprint("text ", i%37, strings.Repeat("ö", i%11))
			want = append(want, text)
			if _, err := w.Write([]row{{text, text, text, text, text, text, &text, &text}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f := write(t, "a.parquet", b.Bytes())
		for _, column := range []string{"plain", "snappy", "gzip", "zstd", "maybe", "null"} {
			got, _, err := collect(t, f, Options{Column: column})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("version %d, %s: %d of %d, %v", version, column, len(got), len(want), err)
			}
		}
		if _, _, err := collect(t, f, Options{Column: "length"}); err == nil || !strings.Contains(err.Error(), "encoded as DELTA_BYTE_ARRAY, which is not read: write it as PLAIN") {
			t.Errorf("delta: %v", err)
		}
		if _, _, err := collect(t, f, Options{Column: "brotli"}); err == nil || !strings.Contains(err.Error(), "compressed with BROTLI, which is not read: write it with zstd") || strings.Contains(err.Error(), "get the file again") {
			t.Errorf("brotli: %v", err)
		}
	}
}

// TestFooterIsBounded: lists of any size, and structures without end, are refused before the library sees them.
func TestFooterIsBounded(t *testing.T) {
	footer := func(thrift []byte) []byte {
		b := append([]byte(parquetMagic), thrift...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(thrift)))
		return append(b, parquetMagic...)
	}
	for says, b := range map[string][]byte{
		"a list of 536870912 items":   footer([]byte{0x15, 0x02, 0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x02}),
		"structures more than 32":     footer(bytes.Repeat([]byte{0x1c}, 1<<20)),
		"a footer of 4294967295":      []byte("PAR1" + "\xff\xff\xff\xff" + "PAR1"),
		"8 bytes are no Parquet file": []byte("PAR1PAR1"),
	} {
		if _, _, err := collect(t, write(t, "a.parquet", b), Options{}); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// BenchmarkRead reads documents of some 2 kB out of each format; the rate is that of their text.
func BenchmarkRead(b *testing.B) {
	const documents = 20_000
	text := strings.Repeat("It is a truth universally acknowledged, that \"a single man\" in possession of a good fortune, must be in want of a wife.\n", 17)
	formats := map[string][]byte{}
	var lines, table bytes.Buffer
	table.WriteString("id,text\n")
	type row struct {
		Text string `parquet:"text,zstd"`
	}
	var columns bytes.Buffer
	w := parquet.NewGenericWriter[row](&columns)
	bytesOfText := int64(0)
	for i := range documents {
		document := fmt.Sprint(i, text)
		bytesOfText += int64(len(document))
		fmt.Fprintf(&lines, "{\"id\":%d,\"text\":%q}\n", i, document)
		fmt.Fprintf(&table, "%d,\"%s\"\n", i, strings.ReplaceAll(document, `"`, `""`))
		if _, err := w.Write([]row{{document}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	formats["a.jsonl"], formats["a.csv"], formats["a.parquet"] = lines.Bytes(), table.Bytes(), columns.Bytes()
	formats["a.jsonl.zst"], formats["a.jsonl.gz"] = zstdded(b, lines.Bytes()), gzipped(b, lines.Bytes())
	for _, name := range []string{"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.parquet"} {
		b.Run(name, func(b *testing.B) {
			f := write(b, name, formats[name])
			b.SetBytes(bytesOfText)
			for b.Loop() {
				n := int64(0)
				if _, err := Read(f, Options{}, func(d []byte, _ int64) error { n += int64(len(d)); return nil }); err != nil || n != bytesOfText {
					b.Fatal(n, err)
				}
			}
		})
	}
	b.Run("text", func(b *testing.B) {
		f := write(b, "a.txt", bytes.Repeat([]byte(text), documents))
		b.SetBytes(int64(len(text) * documents))
		for b.Loop() {
			r, err := Open(f, Options{})
			if err == nil {
				_, err = io.Copy(io.Discard, r.Text())
				r.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
