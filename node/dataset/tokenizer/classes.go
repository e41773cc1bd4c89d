package tokenizer

import (
	"sync"
	"unicode/utf8"
)

// class divides the characters for the splitters.
type class uint8

const (
	other  class = iota // punctuation, marks, symbols, unassigned and stray bytes
	letter              // \p{L}
	number              // \p{N}
	space               // \s
)

// classOf holds the class of every character. It is made once, at first use: 1.1 MB that
// spare a search in classRanges for each character that is not ASCII.
var classOf = sync.OnceValue(func() *[utf8.MaxRune + 1]class {
	table := new([utf8.MaxRune + 1]class)
	for c, ranges := range classRanges {
		for i := 0; i < len(ranges); i += 2 {
			for r := ranges[i]; r <= ranges[i+1]; r++ {
				table[r] = class(c)
			}
		}
	}
	return table
})

// classify returns the class and the size of the first character of t, which is not empty.
func (s splitter) classify(t []byte) (class, int) {
	if t[0] < utf8.RuneSelf {
		return s.classes[t[0]], 1
	}
	r, size := utf8.DecodeRune(t)
	if r == utf8.RuneError && size == 1 {
		return other, 1
	}
	return s.classes[r], size
}

// run is the length of the characters of class c at the front of t, at most limit of them.
func (s splitter) run(t []byte, c class, limit int) int {
	n := 0
	for count := 0; n < len(t) && count < limit; count++ {
		next, size := s.classify(t[n:])
		if next != c {
			break
		}
		n += size
	}
	return n
}
