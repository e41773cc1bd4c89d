package screen

import (
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// style is how a span looks on a terminal with colours.
type style string

// The styles, as parameters of the control sequence SGR.
const (
	plainly style = ""
	strong  style = "1"
	faint   style = "2"
	good    style = "32"
	wary    style = "33"
	bad     style = "31"
)

// span is a text in one style. Its text is clean: see printable.
type span struct {
	text  string
	style style
}

// line holds what stands on one line of the terminal.
type line []span

// cells measures runes without a look at the environment: characters of ambiguous width are narrow.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// maxMarks bounds the marks that stand on one character.
const maxMarks = 3

// printable returns a text of others as one line that a terminal cannot obey: white space is a space, and what is not printable, or no
// UTF-8, is a replacement character.
func printable(text string) string {
	var b strings.Builder
	marks := 0
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = unicode.ReplacementChar
		}
		if cells.RuneWidth(r) > 0 {
			marks = 0
		} else if marks++; marks > maxMarks {
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// width returns the cells of a clean text.
func width(text string) (n int) {
	for _, r := range text {
		n += cells.RuneWidth(r)
	}
	return n
}

// cut returns as much of a clean text as fits, with an ellipsis where that is not all.
func cut(text string, room int) string {
	if width(text) <= room {
		return text
	}
	if room <= 0 {
		return ""
	}
	used := 1 // the ellipsis
	for i, r := range text {
		if used += cells.RuneWidth(r); used > room {
			return text[:i] + "…"
		}
	}
	return text
}

// pad fills a clean text up to a number of cells, or cuts it.
func pad(text string, room int) string {
	text = cut(text, room)
	return text + strings.Repeat(" ", max(0, room-width(text)))
}

// wrap breaks a clean text between words into lines of at most room cells; a longer word is broken itself.
func wrap(text string, room int) (lines []string) {
	room = max(room, 1)
	current := ""
	for word := range strings.FieldsSeq(text) {
		for width(word) > room {
			head, rest := split(word, room)
			if current != "" {
				lines, current = append(lines, current), ""
			}
			lines, word = append(lines, head), rest
		}
		switch {
		case current == "":
			current = word
		case width(current)+1+width(word) <= room:
			current += " " + word
		default:
			lines, current = append(lines, current), word
		}
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}

// split returns the first room cells of a word, at least a rune, and the rest.
func split(word string, room int) (head, rest string) {
	used := 0
	for i, r := range word {
		if used += cells.RuneWidth(r); used > room && i > 0 {
			return word[:i], word[i:]
		}
	}
	return word, ""
}

// draw returns a line as text that takes no more cells than there are.
func (l line) draw(room int, colour bool) string {
	var b strings.Builder
	for _, s := range l {
		text := cut(s.text, room)
		room -= width(text)
		switch {
		case text == "":
		case colour && s.style != plainly:
			b.WriteString("\x1b[" + string(s.style) + "m" + text + "\x1b[0m")
		default:
			b.WriteString(text)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
