package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pnode/node/dataset/files"
	"pnode/node/dataset/source"
	"pnode/node/dataset/tokenizer"
)

// words is a tokenizer whose tokens are the lengths of words, from 1 to vocab-1.
type words struct {
	vocab   int
	encoded *atomic.Int64 // documents
}

func (w words) Encode(dst []int32, text []byte) []int32 {
	w.encoded.Add(1)
	for _, word := range bytes.Fields(text) {
		dst = append(dst, int32(len(word)))
	}
	return dst
}

func (w words) Vocab() int     { return w.vocab }
func (w words) Hash() [32]byte { return [32]byte{byte(w.vocab)} }

// options for files of documents, one a line: file i has i*50+1 documents.
func options(t testing.TB, files, vocab int) Options {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		var b strings.Builder
		for d := range i*50 + 1 {
			fmt.Fprintf(&b, "{\"text\":%q}\n", strings.Repeat(strings.Repeat("w", d%9+1)+" ", d%17+1))
		}
		fmt.Fprintln(&b, "malformed")
		if err := os.WriteFile(filepath.Join(in, fmt.Sprintf("%02d.jsonl", i)), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Options{
		Out: filepath.Join(dir, "out"), Paths: []string{in}, Source: source.Options{SkipMalformed: true},
		Tokenizer: words{vocab, new(atomic.Int64)}, ShardTokens: 500, Threads: 3, batchBytes: 2000,
	}
}

// content reads all files of a folder.
func content(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

func made(t testing.TB, o Options) Manifest {
	t.Helper()
	m, err := Make(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMakeAndStream: the stream is every document in order with its end, for every width.
func TestMakeAndStream(t *testing.T) {
	for _, vocab := range []int{256, 257, 1 << 16, 1<<16 + 1} {
		o := options(t, 5, vocab)
		m := made(t, o)
		f, err := Open(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		if want := 1 + 51 + 101 + 151 + 201; m.Documents != int64(want) || m.Skipped != 5 || len(m.Shards) < 5 || !IsFolder(o.Out) {
			t.Errorf("%d documents, %d skipped, %d shards; want %d, 5, many", m.Documents, m.Skipped, len(m.Shards), want)
		}
		if fmt.Sprint(f.Manifest) != fmt.Sprint(m) {
			t.Errorf("read %+v, made %+v", f.Manifest, m)
		}
		var want []int32
		for i := range 5 {
			for d := range i*50 + 1 {
				for range d%17 + 1 {
					want = append(want, int32(d%9+1))
				}
				want = append(want, 0)
			}
		}
		var got bytes.Buffer
		if err := f.Stream(&got, math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), appendTokens(nil, want, m.TokenBytes)) || f.Bytes() != int64(got.Len()) {
			t.Errorf("vocabulary %d: other tokens in the stream (%d bytes)", vocab, got.Len())
		}
		var cut bytes.Buffer
		if err := f.Stream(&cut, 1003); err != nil || !bytes.Equal(cut.Bytes(), got.Bytes()[:1003]) {
			t.Errorf("a limit of 1003 bytes gives %d, %v", cut.Len(), err)
		}
	}
}

// TestMakeIsTheSameHoweverItIsInterrupted stops after every number of batches (with -short only 1, 2, 4, ...), goes on,
// and compares every byte with what an uninterrupted call makes, with other threads.
func TestMakeIsTheSameHoweverItIsInterrupted(t *testing.T) {
	o := options(t, 8, 300)
	whole := o
	whole.Out, whole.Threads = o.Out+"-whole", 1
	made(t, whole)
	want := content(t, whole.Out)
	documents := o.Tokenizer.(words).encoded.Load()

	for stop := 1; ; {
		o.Out = fmt.Sprintf("%s-%d", whole.Out, stop)
		o.Tokenizer = words{300, new(atomic.Int64)}
		interrupted := 0
		for interrupted < 100 {
			ctx, cancel := context.WithCancel(context.Background())
			first := o
			first.Tokenizer = stopping{o.Tokenizer.(words), int64(stop * 90 * (interrupted + 1)), cancel}
			_, err := Make(ctx, first)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the same command goes on") {
				t.Fatal(err)
			}
			interrupted++
		}
		if got := content(t, o.Out); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("interrupted %d times after %d documents each: other files", interrupted, stop*90)
		}
		if _, err := os.Stat(o.Out + partial); err == nil {
			t.Error("the unfinished folder is still there")
		}
		if interrupted == 0 {
			break
		}
		if n := o.Tokenizer.(words).encoded.Load(); n >= documents*int64(interrupted+1) {
			t.Errorf("interrupted %d times: %d documents encoded, of %d: nothing was gone on with", interrupted, n, documents)
		}
		if stop++; testing.Short() {
			stop = 2 * (stop - 1)
		}
	}
}

// stopping cancels after a number of documents.
type stopping struct {
	words
	after  int64
	cancel func()
}

func (s stopping) Encode(dst []int32, text []byte) []int32 {
	if s.encoded.Load() >= s.after {
		s.cancel()
	}
	return s.words.Encode(dst, text)
}

func TestMakeRefuses(t *testing.T) {
	o := options(t, 2, 300)
	for name, c := range map[string]struct {
		change func(*Options)
		cause  error
		says   string
	}{
		"malformed":    {func(o *Options) { o.Source.SkipMalformed = false }, source.ErrMalformed, "line 2"},
		"no files":     {func(o *Options) { o.Paths = []string{o.Out + "x*"} }, nil, "matches nothing"},
		"no documents": {func(o *Options) { o.Source.Column = "body" }, files.ErrNone, "2 files without the column (the first: "},
		"end of text":  {func(o *Options) { o.EndOfText = 300 }, nil, "vocabulary of 300"},
		"tokens":       {func(o *Options) { o.Tokenizer = words{5, new(atomic.Int64)} }, nil, "its vocabulary ends at 4"},
		"shards":       {func(o *Options) { o.ShardTokens = -1 }, nil, "a shard of -1 tokens"},
		"no tokenizer": {func(o *Options) { o.TokenizerFiles = []TokenizerFile{{"/no/such.json", "tokenizer.json"}} }, os.ErrNotExist, "such.json"},
	} {
		changed := o
		changed.Out += name
		c.change(&changed)
		_, err := Make(context.Background(), changed)
		if err == nil || c.cause != nil && !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.cause, c.says)
		}
		if IsFolder(changed.Out) {
			t.Errorf("%s: there is a folder all the same", name)
		}
	}
	made(t, o)
	if _, err := Make(context.Background(), o); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "name a new or an empty one") {
		t.Errorf("a folder that is there: %v", err)
	}
}

func TestOtherInputDoesNotGoOn(t *testing.T) {
	o := options(t, 3, 300)
	o.Source.SkipMalformed = false
	o.ShardTokens = 1
	if _, err := Make(context.Background(), o); !errors.Is(err, source.ErrMalformed) {
		t.Fatal(err)
	}
	// The only shard holds the first document: the second file's do not get so far.
	o.Source.SkipMalformed = true
	_, err := Make(context.Background(), o)
	if st, e := os.Stat(filepath.Join(o.Out+partial, stateFile)); e == nil && st.Size() > 0 {
		if !errors.Is(err, ErrOtherJob) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("other options: %v", err)
		}
	} else if err != nil {
		t.Errorf("no state was noted: %v, %v", e, err)
	}
}

func TestTokenizerFilesAreCopied(t *testing.T) {
	o := options(t, 1, 300)
	path := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.TokenizerFiles = []TokenizerFile{{path, "tokenizer.json"}}
	made(t, o)
	if got := content(t, filepath.Join(o.Out, tokenizerDir)); fmt.Sprint(got) != "map[tokenizer.json:{}]" {
		t.Errorf("copied %v", got)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	o := options(t, 2, 300)
	m := made(t, o)
	first := filepath.Join(o.Out, m.Shards[0].File)
	good, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		damage func() []byte
		says   string
	}{
		"a bit":        {func() []byte { b := slices.Clone(good); b[len(b)-1] ^= 1; return b }, "another hash"},
		"the header":   {func() []byte { b := slices.Clone(good); b[0]++; return b }, "does not begin like a shard"},
		"the version":  {func() []byte { b := slices.Clone(good); b[8]++; return b }, "version 2"},
		"the width":    {func() []byte { b := slices.Clone(good); b[12] = 4; return b }, "the manifest says 2"},
		"the length":   {func() []byte { return good[:len(good)-2] }, "bytes, want"},
		"a whole file": {func() []byte { return nil }, "bytes, want"},
	} {
		if err := os.WriteFile(first, c.damage(), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(o.Out)
		if err == nil {
			err = f.Stream(&bytes.Buffer{}, math.MaxInt64)
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "pnode tokenize") {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o.Out); !errors.Is(err, ErrDamaged) {
		t.Errorf("without the file: %v", err)
	}
}

func TestMatch(t *testing.T) {
	a, b := Folder{Dir: "a", Manifest: Manifest{Vocab: 5}}, Folder{Dir: "b", Manifest: Manifest{Vocab: 6}}
	if err := Match([]Folder{a, a, a}); err != nil {
		t.Error(err)
	}
	if err := Match([]Folder{a, a, b}); !errors.Is(err, ErrUnlike) || !strings.Contains(err.Error(), "a and b") {
		t.Error(err)
	}
}

func BenchmarkMake(b *testing.B) {
	dir := b.TempDir()
	text := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(text, bytes.Repeat([]byte("some words of a text\n\n"), 1<<19), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(22 << 19)
	for i := 0; b.Loop(); i++ {
		made(b, Options{
			Out: fmt.Sprint(filepath.Join(dir, "out"), i), Paths: []string{text}, Source: source.Options{Separator: source.BlankLine},
			Tokenizer: words{300, new(atomic.Int64)}, Threads: 2,
		})
	}
}

// TestChooseKnowsBytesByTheirFiles: the tokenizer that an export of a run on bytes has is that
// of bytes, whose documents need no special token behind them.
func TestChooseKnowsBytesByTheirFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range (tokenizer.Bytes{}).Files() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Choose(dir, "")
	if err != nil || c.EndOfText != 0 || c.Tokenizer.Hash() != (tokenizer.Bytes{}).Hash() {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Choose(dir, "<end>"); !errors.Is(err, ErrNoEndOfText) {
		t.Errorf("with a token that bytes lack: %v", err)
	}
}
