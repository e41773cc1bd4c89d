package shard

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/node/dataset"
	"pnode/node/dataset/chunkstest"
	"pnode/node/dataset/source"
	"pnode/planner/plan"
)

// gpt2 is a small tokenizer of GPT-2's form.
var gpt2 = filepath.Join("..", "tokenizer", "testdata", "gpt2.json")

func choose(t *testing.T, path string) Chosen {
	t.Helper()
	c, err := Choose(path, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStoreAndOpenTokenizer: tokens of a folder go into chunks with the tokenizer, and come
// out as windows that the tokenizer turns into the text again.
func TestStoreAndOpenTokenizer(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.txt")
	text := strings.Repeat("ab abc\n--\ncab äß\n--\n", 3000)
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := choose(t, gpt2)
	if c.EndOfText != 420 || c.Tokenizer.Vocab() != 424 || len(c.Files) != 1 {
		t.Fatalf("chosen %+v", c)
	}
	out := filepath.Join(t.TempDir(), "out")
	made(t, Options{
		Out: out, Paths: []string{in}, Source: source.Options{Separator: "--"},
		Tokenizer: c.Tokenizer, EndOfText: c.EndOfText, TokenizerFiles: c.Files, ShardTokens: 1000,
	})
	f, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	m := chunkstest.Memory{}
	spec, err := Store(context.Background(), []Folder{f, f}, dataset.MaxBytes, m.Put)
	if err != nil {
		t.Fatal(err)
	}
	if spec.TokenCount() != 2*f.Manifest.Tokens || spec.Tokens.Documents != 12000 || spec.Vocab() != 424 || spec.EndOfText() != 420 || spec.TokenBytes() != 2 {
		t.Errorf("spec %+v", spec)
	}
	if all := spec.AllChunks(); len(all) != len(spec.Chunks)+1 || !slices.Contains(all, spec.Tokens.Files[0].Chunks[0]) {
		t.Errorf("%d chunks of all", len(all))
	}
	words, err := OpenTokenizer(context.Background(), m, spec)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(m, spec, dataset.Window{Context: 500, StepRows: 1, Vocab: 424})
	if err != nil {
		t.Fatal(err)
	}
	tokens, _, err := d.HeldOut(context.Background(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	window := strings.ReplaceAll(string(words.Decode(nil, tokens)), "<|endoftext|>", "\n--\n")
	if !strings.Contains(text, window[4:len(window)-4]) || len(window) < 600 {
		t.Errorf("a window says %.60q", window)
	}
	if cut, err := Store(context.Background(), []Folder{f}, 1001, m.Put); err != nil || cut.SizeBytes != 1000 {
		t.Errorf("a limit of 1001 bytes of 2-byte tokens gives %d, %v", cut.SizeBytes, err)
	}
}

func TestOpenTokenizerRefuses(t *testing.T) {
	m := chunkstest.Memory{}
	text, err := os.ReadFile(gpt2)
	if err != nil {
		t.Fatal(err)
	}
	h, err := m.Put(text)
	if err != nil {
		t.Fatal(err)
	}
	good := plan.DataFile{Name: "tokenizer.json", Chunks: []plan.Hash{h}, SizeBytes: int64(len(m[h]))}
	right := plan.Hash(choose(t, gpt2).Tokenizer.Hash())
	for name, c := range map[string]struct {
		files []plan.DataFile
		hash  plan.Hash
		cause error
	}{
		"none":         {nil, right, ErrNoTokenizer},
		"another":      {[]plan.DataFile{good}, plan.Hash{9}, ErrNoTokenizer},
		"chunk gone":   {[]plan.DataFile{{Name: good.Name, Chunks: []plan.Hash{{1}}, SizeBytes: 5}}, right, fs.ErrNotExist},
		"other size":   {[]plan.DataFile{{Name: good.Name, Chunks: good.Chunks, SizeBytes: 5}}, right, ErrNoTokenizer},
		"size huge":    {[]plan.DataFile{{Name: good.Name, Chunks: good.Chunks, SizeBytes: 1 << 50}}, right, ErrNoTokenizer},
		"size below 0": {[]plan.DataFile{{Name: good.Name, SizeBytes: -1}}, right, ErrNoTokenizer},
	} {
		spec := plan.DataSpec{Tokens: &plan.TokenSpec{WidthBytes: 2, Vocab: 258, Tokenizer: c.hash, Files: c.files}}
		if _, err := OpenTokenizer(context.Background(), m, spec); !errors.Is(err, c.cause) {
			t.Errorf("%s: %v, want %v", name, err, c.cause)
		}
	}
	bytesSpec := plan.DataSpec{}
	if w, err := OpenTokenizer(context.Background(), m, bytesSpec); err != nil || w.Vocab() != 256 {
		t.Errorf("text: %v, %v", w, err)
	}
}

func TestChoose(t *testing.T) {
	if c, err := Choose(BytesName, ""); err != nil || c.EndOfText != 0 || c.Tokenizer.Vocab() != 256 {
		t.Errorf("bytes: %+v, %v", c, err)
	}
	if _, err := Choose(BytesName, "</s>"); !errors.Is(err, ErrNoEndOfText) {
		t.Errorf("bytes with an end: %v", err)
	}
	if _, err := Choose(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Choose(gpt2, "<stop>"); !errors.Is(err, ErrNoEndOfText) || !strings.Contains(err.Error(), "--end-of-text") {
		t.Errorf("no such end: %v", err)
	}
	for file, want := range map[string]int32{"gpt2": 420, "qwen2": 420, "llama3": 421, "llama2": 2, "mistral": 2} {
		if c := choose(t, filepath.Join(filepath.Dir(gpt2), file+".json")); c.EndOfText != want {
			t.Errorf("%s ends documents with %d, want %d", file, c.EndOfText, want)
		}
	}
}
