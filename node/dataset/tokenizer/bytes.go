package tokenizer

import (
	"crypto/sha256"
	"encoding/json"
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

// Hash is that of the name.
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

// IsBytes tells whether t's tokens are the bytes, whatever files it was read from.
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
