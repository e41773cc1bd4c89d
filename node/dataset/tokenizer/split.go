package tokenizer

import (
	"bytes"
	"math"
	"strings"
	"unicode/utf8"
)

// splitter cuts text into pieces. Every rule below matches at every place of every text,
// so the pieces are the whole text.
type splitter struct {
	rule    splitRule
	classes *[utf8.MaxRune + 1]class
}

// splitRule names an expression.
type splitRule string

const (
	splitNone  splitRule = "" // the text is one piece
	splitGPT2  splitRule = "gpt2"
	splitGPT4  splitRule = "gpt4"  // numbers of up to three digits; Llama 3 too
	splitQwen2 splitRule = "qwen2" // each digit alone
	splitSpace splitRule = "space" // before each U+2581
	// splitWords is splitNone for a vocabulary in which no token reaches over the end of a
	// word, that is, has U+2581 after another character: no merge crosses there, so words
	// can be encoded each for itself, and remembered.
	splitWords splitRule = "words"
)

// expressions are the spellings under which the rules stand in files. All of a rule cut
// every text alike.
var expressions = map[string]splitRule{
	gpt2Expression: splitGPT2,
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: splitGPT2,

	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: splitGPT4,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:  splitGPT4,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`:       splitGPT4,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      splitQwen2,
}

const gpt2Expression = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// next is the length of the first piece of t, which is not empty.
func (s splitter) next(t []byte) int {
	switch s.rule {
	case splitGPT2:
		return s.gpt2(t)
	case splitGPT4:
		return s.gpt4(t, 3)
	case splitQwen2:
		return s.gpt4(t, 1)
	case splitSpace:
		return untilMetaspace(t, 1)
	case splitWords:
		spaces := 0
		for bytes.HasPrefix(t[spaces:], []byte(metaspace)) {
			spaces += len(metaspace)
		}
		return untilMetaspace(t, spaces)
	}
	return len(t)
}

// untilMetaspace is the length of t up to the first U+2581 from start on.
func untilMetaspace(t []byte, start int) int {
	if i := bytes.Index(t[start:], []byte(metaspace)); i >= 0 {
		return start + i
	}
	return len(t)
}

// gpt2 tries, in order:
//
//	'(?:[sdmt]|ll|ve|re)    ?\p{L}+    ?\p{N}+    ?[^\s\p{L}\p{N}]+   \s+(?!\S)   \s+
func (s splitter) gpt2(t []byte) int {
	if n := contraction(t, sameCase); n > 0 {
		return n
	}
	start := 0
	if t[0] == ' ' && len(t) > 1 {
		start = 1
	}
	if c, _ := s.classify(t[start:]); c != space {
		return start + s.run(t[start:], c, math.MaxInt)
	}
	return s.spaces(t)
}

// gpt4 tries, in order:
//
//	'(?i:[sdmt]|ll|ve|re)   [^\r\n\p{L}\p{N}]?\p{L}+   \p{N}{1,digits}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*   \s*[\r\n]+   \s+(?!\S)   \s+
func (s splitter) gpt4(t []byte, digits int) int {
	if n := contraction(t, anyCase); n > 0 {
		return n
	}
	c, size := s.classify(t)
	switch {
	case c == letter:
		return s.run(t, letter, math.MaxInt)
	case c == number:
		return s.run(t, number, digits)
	case t[0] != '\r' && t[0] != '\n':
		if n := s.run(t[size:], letter, math.MaxInt); n > 0 {
			return size + n
		}
	}
	start := 0
	if t[0] == ' ' {
		start = 1
	}
	if n := s.run(t[start:], other, math.MaxInt); n > 0 {
		n += start
		for n < len(t) && (t[n] == '\r' || t[n] == '\n') {
			n++
		}
		return n
	}
	blank := t[:s.run(t, space, math.MaxInt)]
	if i := bytes.LastIndexAny(blank, "\r\n"); i >= 0 {
		return i + 1
	}
	return s.spaces(t)
}

// spaces is `\s+(?!\S)|\s+`: all white space at the end of text, elsewhere all but the
// last character, which the next piece may begin with, or the only one.
func (s splitter) spaces(t []byte) int {
	n, last := 0, 0
	for n < len(t) {
		c, size := s.classify(t[n:])
		if c != space {
			break
		}
		last, n = n, n+size
	}
	if n < len(t) && last > 0 {
		return last
	}
	return n
}

// Contractions by their first character: `s` stands alone, `re` needs both.
const (
	sameCase = "sdmt"
	// The long s folds to s where case is ignored.
	anyCase = "sdmtSDMTſ"
)

// contraction is the length of `'s`, `'ll` and the like at the front of t, or 0.
func contraction(t []byte, alone string) int {
	if t[0] != '\'' || len(t) < 2 {
		return 0
	}
	if r, size := utf8.DecodeRune(t[1:]); strings.ContainsRune(alone, r) {
		return 1 + size
	}
	if len(t) < 3 {
		return 0
	}
	two := t[1:3]
	if alone == anyCase {
		two = bytes.ToLower(two)
	}
	switch string(two) {
	case "ll", "ve", "re":
		return 3
	}
	return 0
}

// metaspace stands for a space in SentencePiece's vocabularies: U+2581.
const metaspace = "\u2581"

// spacing changes spaces before a tokenizer splits.
type spacing struct {
	kind  spacingKind
	strip bool // Decode removes a space in front
	// visible says that spaces become U+2581.
	visible bool
}

// spacingKind says when a space is put in front of a text that is not empty.
type spacingKind uint8

const (
	spacingNone    spacingKind = iota // never, and spaces stay as they are
	spacingNever                      // never
	spacingMissing                    // unless one is there
	spacingFirst                      // unless one is there, and only where the whole text begins
	spacingAlways
)

// apply puts the spaced text into dst.
func (s spacing) apply(dst, text []byte, first bool) []byte {
	mark := " "
	if s.visible {
		mark = metaspace
	}
	has := bytes.HasPrefix(text, []byte(" ")) || bytes.HasPrefix(text, []byte(mark))
	dst = dst[:0]
	if len(text) > 0 && (s.kind == spacingAlways || !has && (s.kind == spacingMissing || s.kind == spacingFirst && first)) {
		dst = append(dst, mark...)
	}
	for part := text; ; {
		n := bytes.IndexByte(part, ' ')
		if n < 0 {
			return append(dst, part...)
		}
		dst = append(append(dst, part[:n]...), mark...)
		part = part[n+1:]
	}
}
