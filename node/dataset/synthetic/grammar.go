package synthetic

import (
	"math"
	"strconv"
)

// kind is a form of line.
type kind struct {
	// draw appends a line, with its newline; below(n) is a number in [0, n), each as likely.
	draw func(line []byte, below func(int) int) []byte
	// entropy is that of the choices, in nats; bytes the mean length.
	entropy, bytes float64
}

// kinds are equally likely. No text is a line of two of them: each has its sign, or words.
var kinds = []kind{
	arithmetic(" + ", 1000, 1000, func(a, b int) int { return a + b }),
	arithmetic(" * ", 10, 100, func(a, b int) int { return a * b }),
	sentences(),
}

// arithmetic returns the lines "a SIGN b = result" for all a in [0, as) and b in [0, bs).
func arithmetic(sign string, as, bs int, result func(a, b int) int) kind {
	appendLine := func(line []byte, a, b int) []byte {
		line = strconv.AppendInt(line, int64(a), 10)
		line = append(line, sign...)
		line = strconv.AppendInt(line, int64(b), 10)
		line = append(line, " = "...)
		line = strconv.AppendInt(line, int64(result(a, b)), 10)
		return append(line, '\n')
	}
	total := 0
	var line []byte
	for a := range as {
		for b := range bs {
			line = appendLine(line[:0], a, b)
			total += len(line)
		}
	}
	return kind{
		draw: func(line []byte, below func(int) int) []byte {
			a := below(as)
			return appendLine(line, a, below(bs))
		},
		entropy: math.Log(float64(as * bs)),
		bytes:   float64(total) / float64(as*bs),
	}
}

// noun is a word in both numbers.
type noun struct{ one, many string }

// Within a list no two words are the same, and none holds a blank: a sentence shows what was drawn.
var (
	one        = []string{"a", "the", "this", "every"}
	many       = []string{"two", "some", "these", "ten"}
	adjectives = []string{"big", "small", "tall", "red", "blue", "quick", "quiet", "happy"}
	animals    = []noun{{"dog", "dogs"}, {"cat", "cats"}, {"fox", "foxes"}, {"mouse", "mice"}, {"horse", "horses"}, {"goose", "geese"}, {"wolf", "wolves"}, {"bird", "birds"}}
	verbs      = []noun{{"sees", "see"}, {"likes", "like"}, {"finds", "find"}, {"follows", "follow"}, {"watches", "watch"}, {"carries", "carry"}, {"hears", "hear"}, {"knows", "know"}}
	things     = []noun{{"house", "houses"}, {"tree", "trees"}, {"leaf", "leaves"}, {"stone", "stones"}, {"box", "boxes"}, {"river", "rivers"}, {"berry", "berries"}, {"child", "children"}}
)

// group is one noun with what stands before it.
type group struct {
	plural                      bool
	determiner, adjective, word int
}

// sentences returns the lines "DETERMINER ADJECTIVE ANIMAL VERB DETERMINER ADJECTIVE THING." Each noun has a number of its
// own; its determiner has the same, and so has the verb after the first.
func sentences() kind {
	draw := func(line []byte, below func(int) int) []byte {
		subject := drawGroup(below, len(animals))
		verb := below(len(verbs))
		object := drawGroup(below, len(things))
		line = subject.append(line, animals)
		line = append(line, ' ')
		line = append(line, verbs[verb].form(subject.plural)...)
		line = append(line, ' ')
		return append(object.append(line, things), ".\n"...)
	}
	bytes := groupBytes(animals) + 1 + formBytes(verbs) + 1 + groupBytes(things) + 2
	return kind{draw, groupEntropy(animals) + math.Log(float64(len(verbs))) + groupEntropy(things), bytes}
}

func drawGroup(below func(int) int, words int) group {
	g := group{plural: below(2) == 1}
	g.determiner = below(len(one)) // there are as many for the plural
	g.adjective = below(len(adjectives))
	g.word = below(words)
	return g
}

func (g group) append(line []byte, words []noun) []byte {
	determiners := one
	if g.plural {
		determiners = many
	}
	line = append(line, determiners[g.determiner]...)
	line = append(line, ' ')
	line = append(line, adjectives[g.adjective]...)
	line = append(line, ' ')
	return append(line, words[g.word].form(g.plural)...)
}

func (n noun) form(plural bool) string {
	if plural {
		return n.many
	}
	return n.one
}

func groupEntropy(words []noun) float64 {
	return math.Log(float64(2 * len(one) * len(adjectives) * len(words)))
}

// groupBytes returns the mean length of a group with its two blanks.
func groupBytes(words []noun) float64 {
	return (meanBytes(one)+meanBytes(many))/2 + 1 + meanBytes(adjectives) + 1 + formBytes(words)
}

func formBytes(words []noun) float64 {
	total := 0
	for _, w := range words {
		total += len(w.one) + len(w.many)
	}
	return float64(total) / float64(2*len(words))
}

func meanBytes(words []string) float64 {
	total := 0
	for _, w := range words {
		total += len(w)
	}
	return float64(total) / float64(len(words))
}
