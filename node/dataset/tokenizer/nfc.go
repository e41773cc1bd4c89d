package tokenizer

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// appendNFC appends text in Unicode's normalization form C; stray bytes stay. Package norm
// finds what is in that form already. The rest goes by the definition, since norm departs
// from it for odd sequences: it puts a separator among more than 30 marks, and composes
// over some characters that block; and the reference knows the marks of Unicode 9 only.
//
// There is one deliberate difference from the reference, whose table of compositions looks
// at the lower 16 bits of a character only: there U+E0041 and U+0301 become U+00C1.
func appendNFC(dst, text []byte) []byte {
	for {
		n := norm.NFC.QuickSpan(text)
		dst = append(dst, text[:n]...)
		text = text[n:]
		if len(text) == 0 {
			return dst
		}
		n = segment(text)
		if r, size := utf8.DecodeRune(text); r == utf8.RuneError && size == 1 {
			dst = append(dst, text[0])
		} else {
			dst = appendDefined(dst, text[:n])
		}
		text = text[n:]
	}
}

// segment is the length of the first character and of those that may join it.
func segment(text []byte) int {
	r, n := utf8.DecodeRune(text)
	if r == utf8.RuneError {
		return n
	}
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError || norm.NFC.Properties(text[n:]).BoundaryBefore() {
			break
		}
		n += size
	}
	return n
}

// appendDefined is form C by its definition (Unicode Standard Annex 15, section 1.3):
// decompose, sort runs of marks by class, compose what is not blocked.
func appendDefined(dst, text []byte) []byte {
	runes := decompose(text)
	for i := 0; i < len(runes); {
		end := i + 1
		for end < len(runes) && ccc(runes[i]) != 0 && ccc(runes[end]) != 0 {
			end++
		}
		slices.SortStableFunc(runes[i:end], func(a, b rune) int { return int(ccc(a)) - int(ccc(b)) })
		i = end
	}
	return append(dst, string(recompose(runes))...)
}

func decompose(text []byte) []rune {
	var runes []rune
	for len(text) > 0 {
		p := norm.NFD.Properties(text)
		part := p.Decomposition()
		if r, _ := utf8.DecodeRune(text); part == nil || afterUnicode9(r) {
			part = text[:p.Size()]
		}
		runes = append(runes, []rune(string(part))...)
		text = text[p.Size():]
	}
	return runes
}

// recompose joins characters with the last starter that none between them blocks.
func recompose(runes []rune) []rune {
	out := runes[:0]
	starter, last := -1, uint8(0) // last: class of the one before, 0 right behind the starter
	for _, r := range runes {
		class := ccc(r)
		if starter >= 0 && (last == 0 || last < class) {
			if whole, ok := compose(out[starter], r); ok {
				out[starter] = whole
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		last = class
		out = append(out, r)
	}
	return out
}

// ccc is the combining class, 0 for those that the reference does not know.
func ccc(r rune) uint8 {
	if afterUnicode9(r) {
		return 0
	}
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// unicode9 holds the characters of Unicode 9, whose tables the reference has: it takes newer marks for plain
// characters.
var unicode9 = rangetable.Assigned("9.0.0")

func afterUnicode9(r rune) bool { return !unicode.Is(unicode9, r) }

// compose is the character that two canonically make, if there is one. Characters beyond
// U+FFFF make only such; package norm has U+11F41 make others.
func compose(a, b rune) (rune, bool) {
	whole := norm.NFC.String(string(a) + string(b))
	r, size := utf8.DecodeRuneInString(whole)
	return r, size == len(whole) && (r > 0xffff) == (a > 0xffff) && !afterUnicode9(r)
}
