package progress

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// proseRows begin lines of a table with a sentence in the second column. A node's row may begin so too, and has more columns.
var proseRows = []string{"- ", "SPARE ", "NOT USED ", "WAITING ", "votes ", "checkpoints ", "model ", "round ", "outer step ", "between "}

// isProse reports whether a line of a table is a sentence, below a beginning of its own or without one.
func isProse(row string) bool {
	if !slices.ContainsFunc(proseRows, func(s string) bool { return strings.HasPrefix(row, s) }) {
		return false
	}
	_, text, ok := strings.Cut(row, "  ")
	return !ok || !strings.Contains(strings.TrimSpace(text), "  ")
}

// folded breaks sentences of more than columns characters between words, but for commands between backquotes, which people copy.
func folded(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var b strings.Builder
	for row := range strings.Lines(text) {
		if !isProse(row) || utf8.RuneCountInString(row)-1 <= columns {
			b.WriteString(row)
			continue
		}
		indent := len("- ")
		if gap := strings.Index(row, "  "); gap >= 0 && !strings.HasPrefix(row, "- ") { // the second column
			indent = len(row) - len(strings.TrimLeft(row[gap:], " "))
		}
		used := indent
		b.WriteString(row[:indent])
		for i, word := range words(row[indent:]) {
			n := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case used+1+n > columns:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				used = indent
			default:
				b.WriteByte(' ')
				used++
			}
			b.WriteString(word)
			used += n
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// words splits a text at its spaces, but for those between backquotes.
func words(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		if r == '`' {
			quoted = !quoted
		}
		return unicode.IsSpace(r) && (!quoted || r == '\n')
	})
}
