package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func small(t testing.TB, name string) *BPE {
	t.Helper()
	return cases{Tokenizer: name}.open(t)
}

func TestBytes(t *testing.T) {
	text := []byte("a\x00\xff€")
	tokens := Bytes{}.Encode([]int32{9}, text)
	if want := []int32{9, 'a', 0, 255, 0xe2, 0x82, 0xac}; !slices.Equal(tokens, want) {
		t.Errorf("tokens %v, want %v", tokens, want)
	}
	if got := (Bytes{}).Decode([]byte("x"), append(tokens[1:], -1, 256)); string(got) != "x"+string(text) {
		t.Errorf("came back as %q", got)
	}
}

func TestSpecialTokensAndTemplate(t *testing.T) {
	llama := small(t, "llama3.json")
	begin, ok := llama.Special("<|begin_of_text|>")
	if before, after := llama.Around(); !ok || !slices.Equal(before, []int32{begin}) || after != nil {
		t.Errorf("around a document: %v and %v, begin is %d, %v", before, after, begin, ok)
	}
	if _, ok := llama.Special("the"); ok {
		t.Error("an ordinary token is special")
	}
	text := []byte("x<|begin_of_text|>")
	if got := llama.Encode(nil, text); slices.Contains(got, begin) {
		t.Errorf("text of a special token became it: %v", got)
	}
}

// TestFilesOfGPT2 writes a tokenizer in GPT-2's two files and expects the same one.
func TestFilesOfGPT2(t *testing.T) {
	dir := t.TempDir()
	var vocab strings.Builder
	vocab.WriteString(`{"ab":256,"abc":257,"<|endoftext|>":258`)
	for b, r := range byteRunes {
		text, err := json.Marshal(string(r))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&vocab, ",%s:%d", text, b)
	}
	vocab.WriteString("}")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "neither tokenizer.json nor vocab.json and merges.txt") {
		t.Errorf("empty folder: %v", err)
	}
	write(jsonFile, `{"version":`)
	if _, err := Open(dir); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "tokenizer.json: not a valid tokenizer file: its JSON is cut off") {
		t.Errorf("half a file: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, jsonFile)); err != nil {
		t.Fatal(err)
	}
	write(vocabFile, vocab.String())
	write(mergesFile, "#version: 0.2\na b\nab c\n")
	two, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := two.Encode(nil, []byte("abcab\nb")), []int32{257, 256, '\n', 'b'}; !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
	write(configFile, `{"tokenizer_class":"Qwen2Tokenizer","model_max_length":1}`)
	if _, err := Open(dir); !errors.Is(err, ErrUnsupported) {
		t.Errorf("another family's files: %v", err)
	}
	write(jsonFile, `{"model":{"vocab":`+vocab.String()+`,"merges":["a b","ab c"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
		"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":258,"content":"<|endoftext|>","special":true,"normalized":true}]}`)
	one, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if one.Hash() != two.Hash() {
		t.Error("the same tokenizer has two hashes")
	}
}

// elsewhere is the path of a file that is not part of this project: in the folder that
// PNODE_TESTDATA names, or in shared/data beside the source tree.
func elsewhere(name string) string {
	if dir := os.Getenv("PNODE_TESTDATA"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join("../../../../shared/data", name)
}

func TestGPT2(t *testing.T) {
	dir := elsewhere("gpt2-tokenizer")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no copy of GPT-2's tokenizer here")
	}
	gpt2, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if gpt2.Vocab() != 50257 {
		t.Errorf("vocabulary of %d", gpt2.Vocab())
	}
	text := "Hello, I'm a language model,  isn't it? 12345 naïve 你好 <|endoftext|>\n\n\tx"
	want := []int32{15496, 11, 314, 1101, 257, 3303, 2746, 11, 220, 2125, 470, 340, 30, 17031, 2231}
	if got := gpt2.Encode(nil, []byte(text)); !slices.Equal(got[:len(want)], want) {
		t.Errorf("tokens %v, want %v...", got, want)
	}
}

// TestHeapEqualsScan compares the two ways of merging on words of few distinct symbols,
// which merge most.
func TestHeapEqualsScan(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := merger{merges: map[pair]merge{}}
	for rank := range int32(60) {
		p := pair{random.Int32N(4 + rank), random.Int32N(4 + rank)}
		if _, ok := m.merges[p]; !ok {
			m.merges[p] = merge{rank, 4 + rank}
		}
	}
	for range 2000 {
		word := make([]int32, random.IntN(70))
		for i := range word {
			word[i] = random.Int32N(4)
		}
		want := slices.Clone(m.scan(slices.Clone(word)))
		if got := m.drain(slices.Clone(word)); !slices.Equal(got, want) {
			t.Fatalf("%v: heap %v, scan %v", word, got, want)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	gpt2 := small(t, "gpt2.json")
	all := allCases(t)[0].Cases
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range all {
				c := all[(i+worker*31)%len(all)]
				if got := gpt2.Encode(nil, []byte(c.Text)); !slices.Equal(got, c.IDs) {
					t.Errorf("%.100q: %v, want %v", c.Text, clip(got), clip(c.IDs))
					return
				}
			}
		})
	}
	group.Wait()
}

// TestRefusals changes one thing about a sound file at a time.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		file, from, to string
		want           error
		names          string
	}{
		{"gpt2.json", `"truncation":null`, `"truncation":{"max_length":5}`, ErrUnsupported, "truncation"},
		{"gpt2.json", `"padding":null`, `"padding":{}`, ErrUnsupported, "padding"},
		{"gpt2.json", `"version":"1.0"`, `"version":"2.0"`, ErrUnsupported, "version"},
		{"gpt2.json", `"normalizer":null`, `"normalizer":{"type":"Lowercase"}`, ErrUnsupported, "Lowercase"},
		{"gpt2.json", `"normalizer":null`, `"normalizer":{"type":"NFC","form":2}`, ErrUnsupported, "form"},
		{"gpt2.json", `"pre_tokenizer":{"type":"ByteLevel"`, `"pre_tokenizer":{"type":"Whitespace"`, ErrUnsupported, "Whitespace"},
		{"gpt2.json", `"post_processor":null`, `"post_processor":{"type":"RobertaProcessing"}`, ErrUnsupported, "Roberta"},
		{"gpt2.json", `"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"WordPiece"`, ErrUnsupported, "WordPiece"},
		{"gpt2.json", `"type":"BPE"`, `"type":"Unigram"`, ErrUnsupported, `model.type "Unigram"; accepted: BPE`},
		{"gpt2.json", `"dropout":null`, `"dropout":0.1`, ErrUnsupported, "dropout"},
		{"gpt2.json", `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, ErrUnsupported, "end_of_word_suffix"},
		{"gpt2.json", `"lstrip":false`, `"lstrip":true`, ErrUnsupported, "lstrip"},
		{"gpt2.json", `"version"`, `"colour":1,"version"`, ErrUnsupported, "colour"},
		{"gpt2.json", `"id":421`, `"id":420`, ErrFormat, "420"},
		{"gpt2.json", `"id":421`, `"id":2000000`, ErrFormat, "2000000"},
		{"gpt2.json", `"merges":[[`, `"merges":[["a","b","c"],[`, ErrFormat, "3 parts"},
		{"gpt2.json", `"merges":[[`, `"merges":[["a","nonsense"],[`, ErrFormat, "nonsense"},
		{"gpt2.json", `"Ā":`, `"nul":`, ErrUnsupported, "byte 0x00"},
		{"llama3.json", `\p{N}{1,3}`, `\p{N}{1,4}`, ErrUnsupported, "pre_tokenizer"},
		{"llama3.json", `"Isolated"`, `"MergedWithNext"`, ErrUnsupported, "MergedWithNext"},
		{"qwen2.json", `"normalized":false`, `"normalized":true`, ErrUnsupported, "normalized"},
		{"mistral.json", `"byte_fallback":true`, `"byte_fallback":false`, ErrUnsupported, "byte_fallback"},
		{"mistral.json", `"prepend_scheme":"first"`, `"prepend_scheme":"last"`, ErrUnsupported, "last"},
		{"mistral.json", `{"type":"ByteFallback"},`, ``, ErrUnsupported, "decoder"},
		{"llama2.json", `"prepend":"▁"`, `"prepend":"_"`, ErrUnsupported, "Prepend"},
		{"llama2.json", `{"type":"Prepend"`, `{"type":"Sequence","normalizers":[]},{"type":"Prepend"`, nil, ""},
	} {
		sound, err := os.ReadFile(filepath.Join("testdata", test.file))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(sound, []byte(strings.ReplaceAll(test.from, `\`, `\\`)), []byte(strings.ReplaceAll(test.to, `\`, `\\`)), 1)
		if bytes.Equal(changed, sound) {
			t.Fatalf("%s has no %s", test.file, test.from)
		}
		if _, err := Parse(changed); !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s with %s: %v", test.file, test.to, err)
		}
	}
}

// TestOtherModels have fields of the same names and other types: the model is what is refused.
func TestOtherModels(t *testing.T) {
	_, err := Parse([]byte(`{"version":"1.0","model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0]]}}`))
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), `model.type "Unigram"; accepted: BPE`) {
		t.Error(err)
	}
}

// FuzzRoundTrip: byte-level tokenizers give back every byte, and all tokens are in the
// vocabulary; the splits cover the text.
func FuzzRoundTrip(f *testing.F) {
	for _, c := range allCases(f)[0].Cases[:120] {
		f.Add([]byte(c.Text))
	}
	f.Add([]byte("\xff\xc3\x28\xf0\x9f\x98 \xe2\x82"))
	names := []string{"gpt2.json", "gpt4.json", "llama3.json", "qwen2.json", "prefix.json", "llama2.json", "mistral.json", "metaspace.json"}
	tokenizers := make([]*BPE, len(names))
	for i, name := range names {
		tokenizers[i] = small(f, name)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for i, tokenizer := range tokenizers {
			tokens := tokenizer.Encode(nil, text)
			if len(tokens) > 0 && (slices.Min(tokens) < 0 || int(slices.Max(tokens)) >= tokenizer.Vocab()) {
				t.Fatalf("%s: tokens %v", names[i], tokens)
			}
			if got := tokenizer.Decode(nil, tokens); !bytes.Equal(got, expectBack(tokenizer, text)) {
				t.Fatalf("%s: %q came back as %q", names[i], text, got)
			}
		}
	})
}

// FuzzParse: whatever is accepted encodes every byte.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"prefix.json", "llama2.json", "qwen2.json", "mistral.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"model":{"vocab":{"a":0},"merges":["a a"]},"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]}}`))
	f.Add([]byte(`{"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"}]},"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}]}}`))
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tokenizer, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if tokens := tokenizer.Encode(nil, all); len(tokens) == 0 || len(tokenizer.Decode(nil, tokens)) == 0 {
			t.Fatalf("tokens of all bytes: %v", tokens)
		}
	})
}

// BenchmarkEncode reports tokens a second on one goroutine, for documents of a few KB and
// a vocabulary of 50257 if a copy of GPT-2's is here.
func BenchmarkEncode(b *testing.B) {
	tokenizer, err := Open(elsewhere("gpt2-tokenizer"))
	if err != nil {
		tokenizer = small(b, "gpt2.json")
	}
	text, err := os.ReadFile(elsewhere("tinyshakespeare.txt"))
	if err != nil {
		text = []byte(strings.Repeat(allCases(b)[0].Cases[100].Text+" and the like. ", 3000))
	}
	var tokens []int32
	count := 0
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for rest := text; len(rest) > 0; rest = rest[min(4096, len(rest)):] {
			tokens = tokenizer.Encode(tokens[:0], rest[:min(4096, len(rest))])
			count += len(tokens)
		}
	}
	b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "tokens/s")
}

// TestBytesDescribeThemselves: other programs, and this one, read the same tokens out of the
// files.
func TestBytesDescribeThemselves(t *testing.T) {
	read, err := FromFiles(Bytes{}.Files())
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for b := range 256 {
		all = append(all, byte(b), 'a', ' ')
	}
	want := Bytes{}.Encode(nil, all)
	if got := read.Encode(nil, all); !slices.Equal(got, want) {
		t.Errorf("tokens %v, want the bytes", got)
	}
	if got := read.Decode(nil, want); !bytes.Equal(got, all) || read.Vocab() != 256 {
		t.Errorf("%d tokens; decoded %q", read.Vocab(), got)
	}
	if !IsBytes(read) || !IsBytes(Bytes{}) {
		t.Error("not taken for bytes")
	}
}
