package source

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestCSV(t *testing.T) {
	prose := strings.Repeat("It goes on without tabs.\n", 500)
	long := strings.Repeat("words, and \n", blockBytes/8)
	for _, c := range []struct {
		name, content, column string
		want                  []string
	}{
		{"a.csv", "id,text\n1,one\n2,\"two, \"\"quoted\"\"\r\nlines\"\n\n3,\n4,last", "", []string{"one", "two, \"quoted\"\r\nlines", "last"}},
		{"a.csv", byteOrderMark + "text;n\r\nä b;1\r\n\"\";2\r\n", "", []string{"ä b"}},
		{"a.tsv", "id\tbody\n1\ta, b\n", "body", []string{"a, b"}},
		{"a.csv", "\"text\"\n\"a\"\nb", "", []string{"a", "b"}},
		{"export.txt", "id,text\n1,told by its content\n", "", []string{"told by its content"}},
		{"a.txt", "id,text\nand no table\n", "", []string{"id,text\nand no table\n"}},
		{"a.txt", "text\nand no table\n", "", []string{"text\nand no table\n"}},
		{"a.txt", "text\thead\nfirst\tline\n" + prose, "", []string{"text\thead\nfirst\tline\n" + prose}},
		{"a.txt", "id,text\n1,\"" + long + "\"\n2,b\n", "", []string{long, "b"}},
		{"a.txt", "id,text\n1," + prose[:20] + "\n2,\"" + long + "\"\n", "", []string{prose[:20], long}},
	} {
		for name, content := range map[string][]byte{c.name: []byte(c.content), c.name + ".gz": gzipped(t, []byte(c.content)), c.name + ".zst": zstdded(t, []byte(c.content))} {
			got, skipped, err := collect(t, write(t, name, content), Options{Column: c.column})
			if err != nil || skipped.Documents() != 0 || !slices.Equal(got, c.want) {
				t.Errorf("%s of %q: %q, %+v, %v; want %q", name, c.content, got, skipped, err, c.want)
			}
		}
	}
}

func TestCSVErrors(t *testing.T) {
	good := strings.Repeat("1,x\n", 500)
	for _, c := range []struct {
		content, says string
		tolerated     bool
	}{
		{"id,body\n1,x\n", `no such column "text"; columns: id, body. Name that of the text with --column`, false},
		{"id,text\n" + good + "1,x,y\n", "a.csv: line 502: 3 fields, the header has 2", true},
		{"id,text\n" + good + "1,\"x\"y\n", "line 502: text between a closing quote and the end of the field", true},
		{"id,text\n" + good + "1,\xff\n", "line 502: not UTF-8", true},
		{"id,text\n" + good + "1,\"x\n" + good, "the quote that opens a field in line 502 is not closed up to the end", false},
	} {
		f := write(t, "a.csv", []byte(c.content))
		got, skipped, err := collect(t, f, Options{})
		if c.tolerated && (err != nil || len(got) != 500 || skipped.Documents() != 1 || !strings.Contains(skipped.First, c.says)) {
			t.Errorf("%d documents, %+v, %v; want %q", len(got), skipped, err, c.says)
		}
		if !c.tolerated && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// TestGuessedFormatsCanBeText: an error in a file whose format was told by its beginning says so, and how to have it as text.
func TestGuessedFormatsCanBeText(t *testing.T) {
	for format, beginning := range map[string]string{"CSV": "id,text\n" + strings.Repeat("1,x\n", blockBytes/4), "JSON Lines": `{"text":"x"}` + "\n"} {
		content := beginning + strings.Repeat("no such row\n", 2000)
		f := write(t, "a.txt", []byte(content))
		if _, _, err := collect(t, f, Options{}); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "It is read as "+format+" since its beginning is; to read it as text, name a --column") {
			t.Errorf("%s: %v", format, err)
		}
		if got, _, err := collect(t, f, Options{Column: "none"}); err != nil || !slices.Equal(got, []string{content}) {
			t.Errorf("%s as text: %d documents, %v", format, len(got), err)
		}
	}
}

// TestTolerance: one malformed document in a hundred is left out, more are an error, at the latest at the end, and early where there are many.
func TestTolerance(t *testing.T) {
	for _, c := range []struct {
		good, bad int
		says      string
	}{
		{99, 1, ""},
		{98, 1, "line 99"},
		{198, 2, ""},
		{197, 2, "so are 2 of the 199 documents"},
		{50_000, 5_000, "so are 1000 of the 51000 documents up to here, and 1 in 100 is left out at most"},
	} {
		text := strings.Repeat(`{"text":"x"}`+"\n", c.good) + strings.Repeat("{\n", c.bad)
		f := write(t, "a.jsonl", []byte(text))
		got, skipped, err := collect(t, f, Options{})
		if c.says == "" && (err != nil || len(got) != c.good || skipped.Malformed != int64(c.bad)) {
			t.Errorf("%d good, %d bad: %d documents, %+v, %v", c.good, c.bad, len(got), skipped, err)
		}
		if c.says != "" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--skip-malformed")) {
			t.Errorf("%d good, %d bad: %v, want %q", c.good, c.bad, err, c.says)
		}
		if got, _, err := collect(t, f, Options{SkipMalformed: true}); err != nil || len(got) != c.good {
			t.Errorf("%d good, %d bad, skipping: %d documents, %v", c.good, c.bad, len(got), err)
		}
	}
}

// TestCSVEqualsWriter reads what the standard library writes.
func TestCSVEqualsWriter(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	parts := []string{"a", "ä", ",", ";", "\t", "\"", "\n", " ", "\"\"", "x\"\ny", "text"}
	for range 300 {
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		w.UseCRLF = r.IntN(2) == 0
		if w.UseCRLF {
			parts[6] = "" // the writer would change line ends in fields
			parts[9] = ""
		}
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		check(w.Write([]string{"n", "text"}))
		var want []string
		for n := range r.IntN(20) {
			var text strings.Builder
			for range r.IntN(8) {
				text.WriteString(parts[r.IntN(len(parts))])
			}
			if text.Len() > 0 {
				want = append(want, text.String())
			}
			check(w.Write([]string{fmt.Sprint(n), text.String()}))
		}
		w.Flush()
		got, _, err := collect(t, write(t, "a.csv", b.Bytes()), Options{})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q gives %q, %v; want %q", b.String(), got, err, want)
		}
	}
}
