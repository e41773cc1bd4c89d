package tokenizer

import "bytes"

// metaspace stands for a space in SentencePiece's vocabularies: U+2581.
const metaspace = "\u2581"

// spacing is what a tokenizer does to spaces before it splits.
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
