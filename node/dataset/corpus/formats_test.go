package corpus

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"pnode/node/dataset/chunkstest"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// formats writes the same documents in every form, and returns the paths.
func formats(t *testing.T, documents []string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	paths := map[string]string{}
	put := func(name string, content []byte) {
		paths[name] = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(paths[name]), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(paths[name], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type row struct {
		ID   int    `parquet:"id"`
		Text string `parquet:"text,zstd"`
	}
	var lines, table, tabs, columns bytes.Buffer
	rows, tabbed, parquets := csv.NewWriter(&table), csv.NewWriter(&tabs), parquet.NewGenericWriter[row](&columns, parquet.MaxRowsPerRowGroup(70))
	tabbed.Comma = '\t'
	check := func(_ any, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(nil, rows.Write([]string{"id", "text"}))
	check(nil, tabbed.Write([]string{"text", "id"}))
	for i, d := range documents {
		put(fmt.Sprintf("texts/%04d.txt", i), []byte(d))
		check(nil, json.NewEncoder(&lines).Encode(map[string]any{"id": i, "text": d}))
		check(nil, rows.Write([]string{fmt.Sprint(i), d}))
		check(nil, tabbed.Write([]string{d, fmt.Sprint(i)}))
		check(parquets.Write([]row{{i, d}}))
	}
	rows.Flush()
	tabbed.Flush()
	check(nil, parquets.Close())
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	check(z.Write(lines.Bytes()))
	check(nil, z.Close())
	packer, err := zstd.NewWriter(nil)
	check(nil, err)
	put("a.jsonl", lines.Bytes())
	put("a.jsonl.gz", zipped.Bytes())
	put("a.jsonl.zst", packer.EncodeAll(lines.Bytes(), nil))
	put("a.csv", table.Bytes())
	put("a.csv.zst", packer.EncodeAll(table.Bytes(), nil))
	put("a.tsv", tabs.Bytes())
	put("a.parquet", columns.Bytes())
	paths["texts"] = filepath.Join(dir, "texts")
	for name := range paths {
		if strings.HasPrefix(name, "texts/") {
			delete(paths, name)
		}
	}
	return paths
}

// TestFormatsGiveTheSameStream: the same documents in the same order are the same samples, whichever files they came in, for bytes and
// for tokens.
func TestFormatsGiveTheSameStream(t *testing.T) {
	var documents []string
	for i := range 200 {
		documents = append(documents, fmt.Sprintf("Document %d says \"ä, \\ \t<😀>\".\r\n%s", i, strings.Repeat("It goes on; ", i%13)))
	}
	var spec plan.DataSpec
	var shards []shard.Shard
	for name, path := range formats(t, documents) {
		c, err := Find([]string{path}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, report, err := c.Store(context.Background(), chunkstest.Memory{}.Put)
		if err != nil || report.Documents != 200 || report.Skipped != (source.Skipped{}) {
			t.Fatalf("%s: %+v, %v", name, report, err)
		}
		if spec.Chunks == nil {
			spec = got
		}
		if !reflect.DeepEqual(got, spec) {
			t.Errorf("%s gives another stream of bytes: %+v, want %+v", name, got, spec)
		}
		m, err := shard.Make(context.Background(), shard.Options{Out: filepath.Join(t.TempDir(), "out"), Paths: []string{path}, Tokenizer: tokenizer.Bytes{}})
		if err != nil {
			t.Fatal(err)
		}
		if shards == nil {
			shards = m.Shards
		}
		if !reflect.DeepEqual(m.Shards, shards) {
			t.Errorf("%s gives another stream of tokens: %+v, want %+v", name, m.Shards, shards)
		}
	}
}

func TestWhatIsLeftOutIsCounted(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "{\"text\":\"line %d\"}\n", i)
	}
	lines.WriteString("{\"text\":7}\n{\"text\":null}\n{\"text\":\"\"}\n{\"text\":\"\xff\"}\n{\"text\n")
	tree(t, map[string]string{"b.jsonl": lines.String(), "a.txt": "text", "c.png": "\x89PNG\x00", "d.csv": "id,body\n1,x\n"})
	text, report := stored(t, []string{"."}, Options{})
	want := source.Skipped{Empty: 2, NotUTF8: 1, WrongType: 1, Malformed: 1, Files: 1, FilesNoColumn: 1}
	first := report.Skipped.First
	if report.Skipped.First = ""; report.Skipped != want || !strings.HasSuffix(first, "b.jsonl: line 1001: no text: field \"text\" is 7, no string") {
		t.Errorf("%+v, the first %q", report.Skipped, first)
	}
	if !strings.HasPrefix(text, "text\nline 0\nline 1\n") || !strings.HasSuffix(text, "\nline 999") || report.Documents != 1001 || report.Files != 2 || report.Tables != 1 {
		t.Errorf("%d bytes of text, %+v", len(text), report)
	}
	for says, paths := range map[string][]string{
		`d.csv: no such column "text"; columns: id, body. Name that of the text with --column`: {"a.txt", "d.csv"},
		"1 file without the column (the first: ":                                               {"d.*"},
	} {
		c, err := Find(paths, Options{})
		if err == nil {
			_, _, err = c.Store(t.Context(), chunkstest.Memory{}.Put)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", paths, err, says)
		}
	}
}

// TestRowsAreCutAtTheLimit in the middle of a document, and the next file is not looked at.
func TestRowsAreCutAtTheLimit(t *testing.T) {
	tree(t, map[string]string{"a.jsonl": "{\"text\":\"one\"}\n{\"text\":\"twö\"}\n", "b.txt": "three"})
	for limit, want := range map[int64]string{3: "one", 4: "one", 5: "one\nt", 7: "one\ntw", 8: "one\ntwö", 9: "one\ntwö", 10: "one\ntwö\nt"} {
		if text, report := stored(t, []string{"a.jsonl", "b.txt"}, Options{LimitBytes: limit}); text != want || !report.Truncated {
			t.Errorf("limit %d: %q, %+v; want %q", limit, text, report, want)
		}
	}
}

func TestProgressAndCancellation(t *testing.T) {
	tree(t, map[string]string{"a.jsonl": strings.Repeat("{\"text\":\"one\"}\n", 100), "b.txt": "three"})
	ctx, cancel := context.WithCancel(t.Context())
	last, total := int64(0), int64(0)
	o := Options{Progress: func(read, of int64) {
		if read < last {
			t.Errorf("%d read after %d", read, last)
		}
		last, total = read, of
	}}
	c, err := Find([]string{"."}, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Store(ctx, chunkstest.Memory{}.Put); err != nil || last != total || total != 1505 {
		t.Errorf("%d of %d, %v", last, total, err)
	}
	cancel()
	last = 0
	if _, _, err := c.Store(ctx, chunkstest.Memory{}.Put); err == nil {
		t.Error("it goes on without its context")
	}
}

// TestFilesLargerThanADocument are streams: text that is one document may be longer than MaxDocumentBytes.
func TestFilesLargerThanADocument(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 70 MB")
	}
	long := strings.Repeat("0123456789abcde\n", source.MaxDocumentBytes/16+1000)
	tree(t, map[string]string{"a.txt": long})
	c, err := Find([]string{"a.txt"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if spec, _, err := c.Store(t.Context(), func([]byte) (plan.Hash, error) { return plan.Hash{}, nil }); err != nil || spec.SizeBytes != int64(len(long)) {
		t.Errorf("%d bytes of %d, %v", spec.SizeBytes, len(long), err)
	}
}
