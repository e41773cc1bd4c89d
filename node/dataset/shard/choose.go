package shard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// ErrNoEndOfText: the tokenizer's end-of-text token cannot be told.
var ErrNoEndOfText = errors.New("end-of-text token unknown")

// BytesName is the name of the tokenizer whose tokens are bytes.
const BytesName = "bytes"

// endsOfText lists the families' names of the token after a document, likeliest first.
var endsOfText = []string{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}

// Chosen is a tokenizer with what else a folder needs of it.
type Chosen struct {
	Tokenizer Tokenizer
	EndOfText int32
	// Files describe the tokenizer.
	Files []TokenizerFile
}

// TokenizerFile is a file to copy under a name that tokenizer.Open looks for.
type TokenizerFile struct{ Path, Name string }

// Choose opens the tokenizer of a folder or file, or that of bytes, which ends documents
// with a NUL: no text holds one. endOfText names the token behind a document; empty is the
// one that the tokenizer's family uses. Errors wrap ErrNoEndOfText or are those of package
// tokenizer.
func Choose(name, endOfText string) (Chosen, error) {
	if name == BytesName {
		if endOfText != "" {
			return Chosen{}, fmt.Errorf("shard: %w: bytes have no token %q: documents end with byte 0", ErrNoEndOfText, endOfText)
		}
		return Chosen{Tokenizer: tokenizer.Bytes{}}, nil
	}
	t, err := tokenizer.Open(name)
	if err != nil {
		return Chosen{}, err
	}
	if tokenizer.IsBytes(t) { // as `pnode export` writes them
		return Choose(BytesName, endOfText)
	}
	c := Chosen{Tokenizer: t}
	if c.EndOfText, err = end(t, endOfText); err != nil {
		return Chosen{}, fmt.Errorf("shard: tokenizer %s: %w", name, err)
	}
	c.Files, err = describing(name)
	return c, err
}

func end(t *tokenizer.BPE, name string) (int32, error) {
	names := endsOfText
	if name != "" {
		names = []string{name}
	}
	for _, n := range names {
		if token, ok := t.Special(n); ok {
			return token, nil
		}
	}
	return 0, fmt.Errorf("%w: there is no special token %s; name the one behind a document with --end-of-text",
		ErrNoEndOfText, strings.Join(names, ", "))
}

// describing lists the files of a tokenizer.
func describing(name string) ([]TokenizerFile, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return []TokenizerFile{{name, tokenizer.Files[0]}}, nil
	}
	var found []TokenizerFile
	for _, file := range tokenizer.Files {
		path := filepath.Join(name, file)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			found = append(found, TokenizerFile{path, file})
		}
	}
	return found, nil
}

// IsBytes reports whether the tokens of a run are bytes of text.
func IsBytes(spec plan.DataSpec) bool {
	return spec.Tokens == nil || spec.Tokens.Tokenizer == tokenizer.Bytes{}.Hash()
}
