package tokenizer

import (
	"crypto/sha256"
	"errors"
	"sync"
	"unicode/utf8"
)

// BPE is byte pair encoding. Open reads one.
type BPE struct {
	tokens [][]byte // what Decode writes; nil for a number that no token has
	merges map[pair]merge
	// byByte are the tokens of single bytes. byChar, nil when the alphabet is bytes, are
	// those of characters; what is not in it becomes bytes.
	byByte [256]int32
	byChar map[rune]int32
	// whole, if not nil, are words that are tokens without any merging.
	whole map[string]int32

	splitter  splitter
	spacing   spacing
	normalize bool // to Unicode's form C
	added     added
	before    []int32 // special tokens around a document
	after     []int32
	hash      [sha256.Size]byte
	scratch   sync.Pool // *scratch
}

// scratch is the memory of one Encode.
type scratch struct {
	merger
	normal  []byte // text in form C
	spaced  []byte
	symbols []int32 // of one word
	cache   map[string][]int32
}

// Words up to maxCachedWord bytes are remembered with their tokens, maxCache at a time.
const (
	maxCachedWord = 24
	maxCache      = 1 << 15
)

// Special is the special token spelled like that.
func (t *BPE) Special(text string) (token int32, ok bool) {
	token, ok = t.added.special[text]
	return token, ok
}

// Around returns the special tokens that the file's template puts before and after a
// document; Encode leaves them out.
func (t *BPE) Around() (before, after []int32) { return t.before, t.after }

// Vocab is the number of tokens.
func (t *BPE) Vocab() int { return len(t.tokens) }

// Hash covers everything that Encode and Decode depend on.
func (t *BPE) Hash() [sha256.Size]byte { return t.hash }

// Decode appends the bytes of tokens, and takes the space off that Encode put in front.
func (t *BPE) Decode(dst []byte, tokens []int32) []byte {
	start := len(dst)
	for _, token := range tokens {
		dst = append(dst, t.Bytes(token)...)
	}
	if t.spacing.strip && len(dst) > start && dst[start] == ' ' {
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}

// Bytes returns the text of one token within a text, nothing for one outside the vocabulary.
func (t *BPE) Bytes(token int32) []byte {
	if token < 0 || int(token) >= len(t.tokens) {
		return nil
	}
	return t.tokens[token]
}

// Encode appends the tokens of text. Special tokens in it are ordinary text; other added
// tokens are found, as the reference does.
func (t *BPE) Encode(dst []int32, text []byte) []int32 {
	s, ok := t.scratch.Get().(*scratch)
	if !ok {
		s = &scratch{merger: merger{merges: t.merges}, cache: map[string][]int32{}}
	}
	defer t.scratch.Put(s)
	t.added.each(text, func(part []byte, token int32, first bool) {
		if token >= 0 {
			dst = append(dst, token)
		} else {
			dst = t.ordinary(dst, s, part, first)
		}
	})
	return dst
}

// ordinary encodes text without added tokens; first reports that it begins the whole text.
func (t *BPE) ordinary(dst []int32, s *scratch, text []byte, first bool) []int32 {
	if t.normalize {
		s.normal = appendNFC(s.normal[:0], text)
		text = s.normal
	}
	if t.spacing.kind != spacingNone {
		s.spaced = t.spacing.apply(s.spaced, text, first)
		text = s.spaced
	}
	for len(text) > 0 {
		n := t.splitter.next(text)
		dst = t.word(dst, s, text[:n])
		text = text[n:]
	}
	return dst
}

// word encodes one piece.
func (t *BPE) word(dst []int32, s *scratch, word []byte) []int32 {
	if token, ok := t.whole[string(word)]; ok {
		return append(dst, token)
	}
	if len(word) > maxCachedWord {
		s.symbols = t.alphabet(s.symbols[:0], word)
		return append(dst, s.apply(s.symbols)...)
	}
	known, ok := s.cache[string(word)]
	if !ok {
		s.symbols = t.alphabet(s.symbols[:0], word)
		known = append([]int32(nil), s.apply(s.symbols)...)
		if len(s.cache) >= maxCache {
			clear(s.cache)
		}
		s.cache[string(word)] = known
	}
	return append(dst, known...)
}

// alphabet appends the symbols that merging starts from.
func (t *BPE) alphabet(dst []int32, word []byte) []int32 {
	for len(word) > 0 {
		size := 1
		if t.byChar != nil {
			var r rune
			r, size = utf8.DecodeRune(word)
			if token, ok := t.byChar[r]; ok && (r != utf8.RuneError || size > 1) {
				dst, word = append(dst, token), word[size:]
				continue
			}
		}
		for _, b := range word[:size] {
			dst = append(dst, t.byByte[b])
		}
		word = word[size:]
	}
	return dst
}

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
	// Hash distinguishes tokenizers: the same hash, the same tokens for every text.
	Hash() [sha256.Size]byte
}
