package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"pnode/pipeline/wire"
	"pnode/pipeline/wire/strict"
)

// fileJSON is tokenizer.json.
type fileJSON struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedJSON     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         modelJSON       `json:"model"`
}

type addedJSON struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type modelJSON struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       mergesJSON       `json:"merges"`
}

// mergesJSON takes both spellings: ["a","b"] and, in older files, "a b".
type mergesJSON [][2]string

// UnmarshalJSON is called by encoding/json.
func (m *mergesJSON) UnmarshalJSON(text []byte) error {
	var pairs [][]string
	if err := json.Unmarshal(text, &pairs); err == nil {
		for _, p := range pairs {
			if len(p) != 2 {
				return fmt.Errorf("a merge of %d parts: %q", len(p), p)
			}
			*m = append(*m, [2]string(p))
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(text, &lines); err != nil {
		return err
	}
	for _, line := range lines {
		if err := m.addLine(line); err != nil {
			return err
		}
	}
	return nil
}

func (m *mergesJSON) addLine(line string) error {
	left, right, ok := strings.Cut(line, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return fmt.Errorf("a merge is two parts with one space between them, not %q", line)
	}
	*m = append(*m, [2]string{left, right})
	return nil
}

// Parse reads the text of a tokenizer.json. Errors wrap ErrUnsupported or ErrFormat.
func Parse(text []byte) (*BPE, error) {
	var f fileJSON
	if err := formatError(strict.Decode(text, &f)); err != nil {
		var other struct{ Model struct{ Type string } }
		_ = json.Unmarshal(text, &other) // as far as it can be read: fields of other models have other types
		if kind := other.Model.Type; kind != "" && kind != bpe {
			err = unsupportedModel(kind)
		}
		return nil, err
	}
	if err := f.refuse(); err != nil {
		return nil, err
	}
	var r recipe
	for _, part := range []struct {
		field string
		value json.RawMessage
		read  func(*recipe, component) error
	}{
		{"normalizer", f.Normalizer, (*recipe).normalizer},
		{"pre_tokenizer", f.PreTokenizer, (*recipe).preTokenizer},
		{"post_processor", f.PostProcessor, (*recipe).postProcessor},
		{"decoder", f.Decoder, (*recipe).decoder},
	} {
		if err := each(part.field, part.value, func(c component) error { return part.read(&r, c) }); err != nil {
			return nil, err
		}
	}
	return build(f.Model, f.AddedTokens, r)
}

// bpe is the type of model.type that this package knows.
const bpe = "BPE"

func unsupportedModel(kind string) error {
	return fmt.Errorf("%w; accepted: %s", unsupported("model.type", kind), bpe)
}

// refuse names the fields outside the four components that ask for too much.
func (f fileJSON) refuse() error {
	if f.Model.Type != bpe && (f.Model.Type != "" || f.Model.Merges == nil) {
		return unsupportedModel(f.Model.Type)
	}
	for _, bad := range []struct {
		is           bool
		field, value string
	}{
		{f.Version != "" && f.Version != "1.0", "version", f.Version},
		{!isNull(f.Truncation), "truncation", string(f.Truncation)},
		{!isNull(f.Padding), "padding", string(f.Padding)},
		{f.Model.Dropout != nil && *f.Model.Dropout != 0, "model.dropout", "not null"},
		{notEmpty(f.Model.Prefix), "model.continuing_subword_prefix", "not empty"},
		{notEmpty(f.Model.Suffix), "model.end_of_word_suffix", "not empty"},
	} {
		if bad.is {
			return unsupported(bad.field, bad.value)
		}
	}
	for _, a := range f.AddedTokens {
		if a.SingleWord || a.LStrip || a.RStrip {
			return unsupported("added_tokens: single_word, lstrip or rstrip", a.Content)
		}
	}
	return nil
}

func notEmpty(s *string) bool { return s != nil && *s != "" }

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// maxQuoted is how much of a refused value an error repeats.
const maxQuoted = 120

func unsupported(field, value string) error {
	if len(value) > maxQuoted {
		value = wire.Clip(value, maxQuoted) + "..."
	}
	return fmt.Errorf("%w: %s %q", ErrUnsupported, field, value)
}

// formatError explains an error of a JSON decoder; nil stays nil.
func formatError(err error) error {
	if err == nil {
		return nil
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("%w: unknown field %s", ErrUnsupported, name)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: its JSON is cut off", ErrFormat)
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}
