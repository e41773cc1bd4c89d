package tokenizer

import (
	"crypto/sha256"
	"errors"
)

// Errors of this package.
var (
	// ErrUnsupported: the file asks for something that this package does not do.
	ErrUnsupported = errors.New("not supported")
	// ErrFormat: the file is not what it should be.
	ErrFormat = errors.New("not a valid tokenizer file")
)

// Tokenizer is safe for concurrent use.
type Tokenizer interface {
	// Encode appends the tokens of text.
	Encode(dst []int32, text []byte) []int32
	// Decode appends the bytes of tokens; those outside the vocabulary have none.
	Decode(dst []byte, tokens []int32) []byte
	// Vocab is the number of tokens: all are below it.
	Vocab() int
	// Hash tells tokenizers apart: the same hash, the same tokens for every text.
	Hash() [sha256.Size]byte
}

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
