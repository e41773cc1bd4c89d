package source

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

type parquetRow struct {
	ID   int64   `parquet:"id"`
	Text *string `parquet:"text,optional"`
	Body string  `parquet:"body,zstd"`
	LZ4  string  `parquet:"lz4,lz4"`
	Meta struct {
		URL string `parquet:"url,dict"`
	} `parquet:"meta"`
}

func parquetFile(t testing.TB, rows int) ([]byte, []string) {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&b, parquet.MaxRowsPerRowGroup(300), parquet.PageBufferSize(1000))
	var bodies []string
	for i := range rows {
		body := fmt.Sprintf("body %d %s", i, strings.Repeat("ä", i%50))
		bodies = append(bodies, body)
		row := parquetRow{ID: int64(i), Body: body}
		if i%10 != 3 {
			row.Text = &bodies[i]
		}
		row.Meta.URL = fmt.Sprint("url", i%7)
		if _, err := w.Write([]parquetRow{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), bodies
}

func TestParquet(t *testing.T) {
	content, bodies := parquetFile(t, 1000)
	f := write(t, "a.parquet", content)
	got, _, err := collect(t, f, Options{Column: "body"})
	if err != nil || !slices.Equal(got, bodies) {
		t.Errorf("%d of %d rows, or others: %v", len(got), len(bodies), err)
	}
	if got, _, err = collect(t, f, Options{Column: "meta.url"}); err != nil || len(got) != 1000 || got[8] != "url1" {
		t.Errorf("a column in a group: %d rows, %v", len(got), err)
	}
	got, skipped, err := collect(t, f, Options{})
	if err != nil || len(got) != 900 || skipped != (Skipped{Empty: 100}) {
		t.Errorf("with nulls: %d rows, %+v, %v", len(got), skipped, err)
	}
	for column, says := range map[string]string{"missing": `no such column "missing"; columns: id, text, body, lz4, meta.url.`, "id": "INT(64", "meta": "columns: id"} {
		if _, _, err = collect(t, f, Options{Column: column, SkipMalformed: true}); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "--column") {
			t.Errorf("column %q: %v, want %q", column, err, says)
		}
	}
	f.Named = false
	if got, skipped, err = collect(t, f, Options{Column: "missing"}); err != nil || len(got) != 0 || skipped.FilesNoColumn != 1 || !strings.Contains(skipped.First, "columns: id") {
		t.Errorf("found without the column: %d rows, %+v, %v", len(got), skipped, err)
	}
}

// TestParquetRefusesLZ4: the library gives other text than a file holds where it is so packed.
func TestParquetRefusesLZ4(t *testing.T) {
	content, _ := parquetFile(t, 1000)
	if _, _, err := collect(t, write(t, "a.parquet", content), Options{Column: "lz4"}); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "compressed with LZ4_RAW, which is not read: write it with zstd") {
		t.Errorf("%v", err)
	}
}

// TestParquetSurvivesDamage changes a few bytes of a file at a time: rows come or an error,
// never a panic or a document that is not text.
func TestParquetSurvivesDamage(t *testing.T) {
	content, _ := parquetFile(t, 20)
	r := rand.New(rand.NewPCG(3, 4))
	failed := 0
	f := write(t, "a.parquet", content)
	for range 1000 {
		damaged := slices.Clone(content)
		for range 1 + r.IntN(4) {
			damaged[r.IntN(len(damaged))] = byte(r.Uint32())
		}
		if err := os.WriteFile(f.Path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(f, Options{SkipMalformed: true}, func(document []byte, _ int64) error {
			if err := checkText(document); err != nil {
				t.Errorf("document %q: %v", document, err)
			}
			return nil
		})
		if err != nil {
			failed++
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNoColumn) {
				t.Fatal(err)
			}
		}
	}
	if failed < 100 {
		t.Errorf("only %d of 1000 damaged files were noticed", failed)
	}
}

// TestCutParquet: half a download is said to be one.
func TestCutParquet(t *testing.T) {
	_, _, err := collect(t, write(t, "cut.parquet", []byte("PAR1 and rows without their end")), Options{})
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "does not end with PAR1") || !strings.Contains(err.Error(), "get the file again") {
		t.Error(err)
	}
}
