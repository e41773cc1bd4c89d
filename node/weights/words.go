package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// ErrNoWords says that a model's tokens cannot be turned into text.
var ErrNoWords = errors.New("no tokenizer")

// Words turn text into a model's tokens and back.
type Words struct {
	tokenizer.Tokenizer
	// Before begins every text, as the tokenizer's template says.
	Before []int32
	// Ends are the tokens after which a text is over.
	Ends []int32
}

// Prompt returns the tokens of a text to continue. An empty one begins like a document: after the end of another, or
// after a newline.
func (w Words) Prompt(text []byte) []int32 {
	tokens := w.Encode(slices.Clone(w.Before), text)
	if len(tokens) == 0 {
		tokens = append(tokens, w.Begin()...)
	}
	if len(tokens) == 0 {
		tokens = w.Encode(nil, []byte{'\n'})
	}
	return tokens
}

// Begin returns the tokens that a document follows: the template's, or the end of another document; none where there is
// neither.
func (w Words) Begin() []int32 {
	if len(w.Before) == 0 && len(w.Ends) > 0 {
		return w.Ends[:1]
	}
	return w.Before
}

// IsEnd reports whether a text is over with that token.
func (w Words) IsEnd(token int32) bool { return slices.Contains(w.Ends, token) }

// Bytes returns the text of one token in the middle of a text.
func (w Words) Bytes(token int32) []byte {
	if bpe, ok := w.Tokenizer.(*tokenizer.BPE); ok {
		return bpe.Bytes(token)
	}
	return w.Decode(nil, []int32{token})
}

// wordsOf reads the tokenizer among a model's files. Without one the tokens of a vocabulary of 256 are bytes. The error
// wraps ErrNoWords.
func wordsOf(files map[string][]byte, vocab int) (*Words, error) {
	t, err := tokenizer.FromFiles(files)
	switch {
	case errors.Is(err, fs.ErrNotExist) && vocab == plan.ByteVocab, err == nil && tokenizer.IsBytes(t):
		return &Words{Tokenizer: tokenizer.Bytes{}}, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the model's files lack tokenizer.json (or vocab.json and merges.txt)", ErrNoWords)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoWords, err)
	}
	w := &Words{Tokenizer: t, Ends: ends(files, vocab)}
	w.Before, _ = t.Around()
	return w, nil
}

// ends returns the tokens that the model's files call eos_token_id: a number or a list of them.
func ends(files map[string][]byte, vocab int) []int32 {
	for _, name := range []string{generationFile, configFile} {
		var config struct {
			End json.RawMessage `json:"eos_token_id"`
		}
		if json.Unmarshal(files[name], &config) != nil {
			continue
		}
		var one int32
		var list []int32
		if json.Unmarshal(config.End, &list) != nil && json.Unmarshal(config.End, &one) == nil {
			list = []int32{one}
		}
		list = slices.DeleteFunc(list, func(t int32) bool { return t < 0 || int(t) >= vocab })
		if len(list) > 0 {
			return list
		}
	}
	return nil
}
