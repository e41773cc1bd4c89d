package progress

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSentencesAreFolded: those of a status, below their own beginning. Rows of cells and commands stay whole.
func TestSentencesAreFolded(t *testing.T) {
	text := "node     desk, training and a few words more than fit\n" +
		"SPARE    attic would help: 11417 tokens/s are predicted with it\n" +
		"NOT USED spot has one space\n" +
		"WAITING  offline: spot; 2 of the 3 must be up: `pnode join --dir x`\n" +
		"votes    active   a node of that name, in a row of cells\n" +
		"- because größere Geräte rechnen: `pnode join --dir /a/folder with/spaces` helps\n" +
		"- short\n"
	want := "node     desk, training and a few words more than fit\n" +
		"SPARE    attic would help: 11417\n         tokens/s are predicted\n         with it\n" +
		"NOT USED spot has one space\n" +
		"WAITING  offline: spot; 2 of the\n         3 must be up:\n         `pnode join --dir x`\n" +
		"votes    active   a node of that name, in a row of cells\n" +
		"- because größere Geräte\n  rechnen:\n  `pnode join --dir /a/folder with/spaces`\n  helps\n" +
		"- short\n"
	if got := folded(text, 32); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := folded(text, 0); got != text {
		t.Errorf("without a width\n%s", got)
	}
	for columns := 1; columns < 100; columns++ { // nothing is lost, and no line is wider than it must be
		got := folded(text, columns)
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(text), " ") {
			t.Fatalf("%d columns: %q", columns, got)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(line) - 1; n > columns && strings.HasPrefix(line, "  ") && len(words(line)) > 1 {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
	}
}
