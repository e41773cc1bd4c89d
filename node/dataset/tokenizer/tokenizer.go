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
