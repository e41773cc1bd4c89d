package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"pnode/node/dataset/files"
)

// write makes a file in a new folder and gives it as one the user named.
func write(t testing.TB, name string, content []byte) File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return File{Path: path, SizeBytes: int64(len(content)), Named: true}
}

// collect reads all documents of a file.
func collect(t testing.TB, f File, o Options) ([]string, Skipped, error) {
	t.Helper()
	var documents []string
	last := int64(0)
	skipped, err := Read(f, o, func(document []byte, read int64) error {
		if read < last || read > f.SizeBytes || len(document) == 0 {
			t.Errorf("document of %d bytes after %d of %d bytes, %d before", len(document), read, f.SizeBytes, last)
		}
		last = read
		documents = append(documents, string(document))
		return nil
	})
	return documents, skipped, err
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdded(t testing.TB, content []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(content, nil)
}

func TestFormats(t *testing.T) {
	const lines = `{"text":"one","id":1}` + "\n\n" + `{"id":2,"text":"zwei äß\n😀"}` + "\r\n" + `{"text":""}` + "\n" + `{"text":"last"}`
	documents := []string{"one", "zwei äß\n😀", "last"}
	for _, c := range []struct {
		name    string
		content []byte
		options Options
		want    []string
	}{
		{"a.txt", []byte("a whole\nfile\n"), Options{}, []string{"a whole\nfile\n"}},
		{"a.go.gz", gzipped(t, []byte("packed")), Options{}, []string{"packed"}},
		{"blank.txt", []byte("\n\none\ntwo\n \t\nthree\n\n\n"), Options{Separator: BlankLine}, []string{"one\ntwo", "three"}},
		{"marked.txt", []byte("one\n\ntwo\n<|end|>\nthree\r\n<|end|>\r\n<|end|>x\n"), Options{Separator: "<|end|>"}, []string{"one\n\ntwo", "three", "<|end|>x"}},
		{"mark.txt", []byte(byteOrderMark + "a whole\nfile" + byteOrderMark), Options{}, []string{"a whole\nfile" + byteOrderMark}},
		{"mark.txt.gz", gzipped(t, []byte(byteOrderMark+"packed")), Options{}, []string{"packed"}},
		{"mark.md", []byte(byteOrderMark + "--\none\n--\ntwo"), Options{Separator: "--"}, []string{"one", "two"}},
		{"empty.txt", []byte(byteOrderMark), Options{}, nil},
		{"short.txt", []byte("ab"), Options{}, []string{"ab"}},
		{"a.jsonl", []byte(lines), Options{}, documents},
		{"A.NDJSON", []byte(lines), Options{Column: "text"}, documents},
		{"windows.jsonl", []byte(byteOrderMark + strings.ReplaceAll(lines, "\n", "\r\n")), Options{}, documents},
		{"a.jsonl.gz", gzipped(t, []byte(lines)), Options{}, documents},
		{"a.jsonl.zst", zstdded(t, []byte(lines)), Options{}, documents},
		{"two.jsonl.gz", append(gzipped(t, []byte(lines+"\n")), gzipped(t, []byte(lines))...), Options{}, append(slices.Clone(documents), documents...)},
		{"other.jsonl", []byte(`{"text":1,"body":"b"}`), Options{Column: "body"}, []string{"b"}},
	} {
		got, skipped, err := collect(t, write(t, c.name, c.content), c.options)
		if skipped.Empty = 0; err != nil || skipped != (Skipped{}) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %+v, %v; want %q", c.name, got, skipped, err, c.want)
		}
	}
}

func TestMalformedIsNamedOrSkipped(t *testing.T) {
	for _, c := range []struct {
		name    string
		content string
		options Options
		says    []string
		rest    []string // with --skip-malformed
		skipped int64
	}{
		{"a.jsonl", "{\"text\":\"a\"}\n{\"text\":\n{\"text\":\"b\"}\n", Options{}, []string{"a.jsonl: line 2", "JSON", "--skip-malformed"}, []string{"a", "b"}, 1},
		{"a.jsonl", "[1]\n{\"body\":\"a\"}\n\"x\"\n", Options{}, []string{"line 1", "no JSON object", "[1]", "so are 3 of the 3 documents"}, nil, 3},
		{"a.jsonl", "{\"text\":\"a\"}\n{\"body\":\"a\",\"id\":1}\n", Options{}, []string{"line 2", `no field "text" but body, id; name`, "--column"}, []string{"a"}, 1},
		{"a.jsonl", `{"text":17}`, Options{}, []string{"is 17, no string"}, nil, 1},
		{"a.jsonl", `{"text":"\ud800"}` + "\n" + `{"text":"\uFFFD` + "\ufffd" + `\ud83d\ude00"}`, Options{}, []string{"line 1", "half of a surrogate pair"}, []string{"\ufffd\ufffd😀"}, 1},
		{"a.jsonl", "{\"text\":\"\xff\"}", Options{}, []string{"not UTF-8"}, nil, 1},
		{"a.jsonl", `{"text":"a\u0000b"}`, Options{}, []string{"NUL"}, nil, 1},
		{"a.jsonl", `{"text":"a"} x`, Options{}, []string{"line 1"}, nil, 1},
		{"a.txt", "a\x00b", Options{}, []string{"a.txt: document 1", "NUL"}, nil, 1},
		{"a.txt", "ok\n\n\xff\nno\n\nok", Options{Separator: BlankLine}, []string{"document from line 3", "not UTF-8"}, []string{"ok", "ok"}, 1},
	} {
		f := write(t, c.name, []byte(c.content))
		_, _, err := collect(t, f, c.options)
		for _, says := range append(c.says, c.name) {
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: error %v, want one that says %q", c.content, err, says)
			}
		}
		c.options.SkipMalformed = true
		got, skipped, err := collect(t, f, c.options)
		if err != nil || skipped.Documents() != c.skipped || !slices.Equal(got, c.rest) {
			t.Errorf("%q skipping: %q, %+v, %v; want %q, %d", c.content, got, skipped, err, c.rest, c.skipped)
		}
	}
}

// TestDamagedFilesEnd: what follows damage cannot be found, so it is an error even when
// malformed documents are skipped.
func TestDamagedFilesEnd(t *testing.T) {
	whole := gzipped(t, []byte(strings.Repeat(`{"text":"line"}`+"\n", 1000)))
	for name, content := range map[string][]byte{
		"cut.jsonl.gz": whole[:len(whole)-20],
		"cut.txt.zst":  zstdded(t, bytes.Repeat([]byte("some words"), 1000))[:20],
		"not.parquet":  []byte("PAR1 but nothing else PAR1"),
	} {
		_, _, err := collect(t, write(t, name, content), Options{SkipMalformed: true})
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "get the file again") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFoundFilesThatAreNotTextAreSkipped(t *testing.T) {
	f := write(t, "pixel.png", []byte("\x89PNG\x00\xff"))
	if _, _, err := collect(t, f, Options{}); !errors.Is(err, ErrMalformed) {
		t.Errorf("named: %v", err)
	}
	f.Named = false
	if got, skipped, err := collect(t, f, Options{}); err != nil || skipped.Files != 1 || got != nil {
		t.Errorf("found: %q, %+v, %v", got, skipped, err)
	}
	// A character cut by the end of what is looked at does not count.
	for shift := range 4 {
		text := strings.Repeat("x", 4093+shift) + "😀 and more"
		f := write(t, "long.txt", []byte(text))
		f.Named = false
		if got, _, err := collect(t, f, Options{}); err != nil || len(got) != 1 || got[0] != text {
			t.Errorf("a character across the look: %d documents, %v", len(got), err)
		}
	}
}

func TestTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 130 MB")
	}
	long := strings.Repeat("0123456789abcde\n", MaxDocumentBytes/16)
	for _, c := range []struct {
		name, content, says string
		options             Options
		rest                int
	}{
		{"long.txt", long + "x", "--document-separator", Options{}, 0},
		{"gathered.txt", long + "x\n\nok", "document from line 1", Options{Separator: BlankLine}, 1},
		{"long.jsonl", `{"text":"` + strings.Repeat("x", 2*MaxDocumentBytes) + "\"}\n{\"text\":\"ok\"}", "line 1", Options{}, 1},
	} {
		f := write(t, c.name, []byte(c.content))
		_, _, err := collect(t, f, c.options)
		if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		c.options.SkipMalformed = true
		if got, skipped, err := collect(t, f, c.options); err != nil || len(got) != c.rest || skipped.TooLong != 1 {
			t.Errorf("%s skipping: %d documents, %+v, %v", c.name, len(got), skipped, err)
		}
	}
	if got, _, err := collect(t, write(t, "fits.txt", []byte(long)), Options{}); err != nil || len(got) != 1 {
		t.Errorf("a document of the greatest length: %v", err)
	}
}

// TestErrorsOfTheCallerComeBack, and its panics, which are not the library's.
func TestErrorsOfTheCallerComeBack(t *testing.T) {
	content, _ := parquetFile(t, 10)
	stop := errors.New("enough")
	for name, f := range map[string]File{
		"parquet": write(t, "a.parquet", content),
		"jsonl":   write(t, "a.jsonl", []byte(`{"body":"x"}`)),
		"text":    write(t, "a.txt", []byte("x")),
		"lines":   write(t, "b.txt", []byte("x\n\ny")),
	} {
		o := Options{Column: "body", SkipMalformed: true}
		if name == "lines" {
			o.Separator = BlankLine
		}
		if _, err := Read(f, o, func([]byte, int64) error { return stop }); err != stop {
			t.Errorf("%s: %v", name, err)
		}
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("the caller's panic came back as %v", p)
		}
	}()
	_, _ = Read(write(t, "a.parquet", content), Options{Column: "body"}, func([]byte, int64) error { panic("mine") })
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.jsonl", "a.txt", ".hidden", "empty"} {
		text := "x"
		if name == "empty" {
			text = ""
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, _, err := Find([]string{filepath.Join(dir, "b.jsonl"), dir})
	var names []string
	for _, f := range found {
		names = append(names, fmt.Sprint(filepath.Base(f.Path), f.SizeBytes, f.Named, f.Modified > 0))
	}
	if want := "[b.jsonl1 true true .hidden1 false true a.txt1 false true]"; err != nil || fmt.Sprint(names) != want {
		t.Errorf("%v, %v; want %s", names, err, want)
	}
	if _, _, err := Find([]string{filepath.Join(dir, "missing")}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "spelling") {
		t.Errorf("a missing path: %v", err)
	}
	if _, _, err := Find([]string{filepath.Join(dir, "empty")}); !errors.Is(err, files.ErrNone) {
		t.Errorf("an empty file: %v", err)
	}
	links := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "a.txt"), filepath.Join(links, "a.txt")); err != nil {
		t.Skip(err)
	}
	if _, _, err := Find([]string{links}); !errors.Is(err, files.ErrNone) || !strings.Contains(err.Error(), "1 links and the like, which are not followed below folders; name them by a pattern such as "+links+"/*") {
		t.Errorf("a folder of links: %v", err)
	}
	if found, _, err := Find([]string{links + "/*"}); err != nil || len(found) != 1 {
		t.Errorf("a pattern of links: %v, %v", found, err)
	}
}
