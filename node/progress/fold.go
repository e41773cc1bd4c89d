package progress

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// proseRows begin lines of a table that are not rows of cells.
var proseRows = []string{"- ", "SPARE ", "NOT USED "}

// folded breaks sentences of more than columns characters between words, but for commands between backquotes, which people copy.
func folded(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var b strings.Builder
	for row := range strings.Lines(text) {
		begins := slices.ContainsFunc(proseRows, func(s string) bool { return strings.HasPrefix(row, s) })
		if !begins || utf8.RuneCountInString(row)-1 <= columns {
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
