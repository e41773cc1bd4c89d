package source

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"
)

// fuzz reads any content as a format: no panic, nothing but valid documents, and errors
// that are malformed input, whatever the options.
func fuzz(f *testing.F, name string) {
	path := filepath.Join(f.TempDir(), name)
	f.Fuzz(func(t *testing.T, content []byte, separator string, skip bool) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file := File{Path: path, SizeBytes: int64(len(content)), Named: true}
		o := Options{Separator: separator, SkipMalformed: skip}
		_, err := Read(file, o, func(document []byte, _ int64) error {
			if bad := checkText(document); bad != nil || len(document) == 0 {
				t.Fatalf("document %q: %v", document, bad)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNoColumn) {
			t.Fatal(err)
		}
	})
}

func FuzzJSONLines(f *testing.F) {
	f.Add([]byte(`{"text":"a"}`+"\n"+`{"text":"\ud83d\ude00","x":[{}]}`), "", false)
	f.Add([]byte(`{"text":"\ud83d"}`+"\n{\"text\":3}\n[]\nnull\n"), "", true)
	fuzz(f, "a.jsonl")
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("id,text\n1,\"a \"\"b\"\"\nc\"\n2,d\n"), "", false)
	f.Add([]byte("text\n\"open\n"), "", true)
	f.Add([]byte("a;text\r\n\"x\"y;z\r\n1;2;3\r\n"), "", true)
	fuzz(f, "a.csv")
}

// FuzzDetect leaves all to the content.
func FuzzDetect(f *testing.F) {
	content, _ := parquetFile(f, 5)
	for _, c := range [][]byte{content, zstdded(f, content), []byte(`{"text":"a"}`), []byte("a,text\n1,2\n"), gzipped(f, []byte("a\ttext\n1\t2\n"))} {
		f.Add(c, "", true)
	}
	fuzz(f, "a")
}

// FuzzJSONDocument compares with the decoder of the standard library.
func FuzzJSONDocument(f *testing.F) {
	f.Add([]byte(`{"text":"a","x":[{"text":1}],"text":"b\u00e4\\\""}`))
	f.Add([]byte(` { "te\u0078t" : "a" , "x":{"y":"}"},"z":1} `))
	f.Add([]byte(`{"text":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := jsonDocument(line, "text")
		var object map[string]json.RawMessage
		if json.Unmarshal(line, &object) != nil || object == nil || object["text"] == nil || object["text"][0] != '"' || !utf8.Valid(line) {
			if err == nil {
				t.Fatalf("%q gives %q", line, got)
			}
			return
		}
		var want string
		if e := json.Unmarshal(object["text"], &want); e != nil || err == nil && want != string(got) {
			t.Fatalf("%q gives %q, want %q, %v", line, got, want, e)
		}
		if names, ok := jsonFields(line); !ok || !slices.Contains(names, "text") {
			t.Fatalf("%q has fields %q", line, names)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add([]byte("one\n\ntwo\r\n--\nthree"), "--", false)
	f.Add([]byte("one\n \ntwo\xff"), BlankLine, true)
	fuzz(f, "a.txt")
}

func FuzzParquet(f *testing.F) {
	content, _ := parquetFile(f, 5)
	f.Add(content, "", true)
	f.Add(content[:len(content)-9], "", false)
	for _, counted := range countedPages(f) {
		f.Add(counted, "", true)
	}
	fuzz(f, "a.parquet")
}

func FuzzZstd(f *testing.F) {
	f.Add(zstdded(f, []byte("some text")), "", false)
	fuzz(f, "a.txt.zst")
}
