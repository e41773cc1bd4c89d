package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
)

// Bytes is the tokenizer whose tokens are the bytes.
type Bytes struct{}

// Encode appends the bytes of text.
func (Bytes) Encode(dst []int32, text []byte) []int32 {
	for _, b := range text {
		dst = append(dst, int32(b))
	}
	return dst
}

// Decode appends the tokens that are bytes.
func (Bytes) Decode(dst []byte, tokens []int32) []byte {
	for _, t := range tokens {
		if t >= 0 && t < 256 {
			dst = append(dst, byte(t))
		}
	}
	return dst
}

// Vocab is 256.
func (Bytes) Vocab() int { return 256 }

// Hash returns the hash of the name.
func (Bytes) Hash() [sha256.Size]byte { return sha256.Sum256([]byte("bytes")) }

// Files describe the same tokens to programs that read a folder's tokenizer: byte pair
// encoding over bytes, without a pair.
func (Bytes) Files() map[string][]byte {
	vocab := map[string]int32{}
	for b, r := range byteRunes {
		vocab[string(r)] = int32(b)
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return map[string][]byte{
		jsonFile: mustJSON(map[string]any{
			"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{},
			"normalizer": nil, "pre_tokenizer": byteLevel, "post_processor": nil, "decoder": byteLevel,
			"model": map[string]any{
				"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
				"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []any{},
			},
		}),
		configFile: mustJSON(map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}),
	}
}

func mustJSON(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("tokenizer: plain values do not marshal: " + err.Error())
	}
	return append(text, '\n')
}

// IsBytes reports whether t's tokens are the bytes, whatever files it was read from.
func IsBytes(t Tokenizer) bool {
	return t.Hash() == Bytes{}.Hash() || t.Hash() == byteFilesHash()
}

// byteFilesHash is the hash of what Files describe.
var byteFilesHash = sync.OnceValue(func() [sha256.Size]byte {
	t, err := FromFiles(Bytes{}.Files())
	if err != nil {
		panic("tokenizer: the files of bytes cannot be read: " + err.Error())
	}
	return t.Hash()
})

// added are the tokens that are found in text before anything else happens to it.
type added struct {
	// rounds are looked for one after the other, the second in what the first leaves.
	rounds  [2]matcher
	special map[string]int32
}

// addedToken is one of them.
type addedToken struct {
	text    []byte
	token   int32
	special bool
}

// each cuts text at added tokens that are not special and calls part for what lies between
// them, with token -1, and for each token. first reports that text begins at the beginning.
func (a *added) each(text []byte, part func(text []byte, token int32, first bool)) {
	whole := true
	a.rounds[0].each(text, func(outer []byte, token int32) {
		if token >= 0 {
			part(nil, token, false)
		} else {
			a.rounds[1].each(outer, func(inner []byte, token int32) {
				part(inner, token, whole)
				whole = false
			})
		}
		whole = false
	})
}

// matcher finds the leftmost, of those the longest token.
type matcher struct {
	byFirst  [256][]addedToken // by first byte, longest first
	ordinary bool              // some are not special
}

func (m *matcher) each(text []byte, part func(text []byte, token int32)) {
	start := 0
	if m.ordinary {
		for i := 0; i < len(text); {
			candidates := m.byFirst[text[i]]
			at := slices.IndexFunc(candidates, func(a addedToken) bool { return bytes.HasPrefix(text[i:], a.text) })
			if at < 0 {
				i++
				continue
			}
			found := candidates[at]
			end := i + len(found.text)
			if !found.special {
				if i > start {
					part(text[start:i], -1)
				}
				part(nil, found.token)
				start = end
			}
			i = end
		}
	}
	if start < len(text) {
		part(text[start:], -1)
	}
}
