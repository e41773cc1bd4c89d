package qrcode

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skip2/go-qrcode"
)

// invite is as long as those that name one address.
var invite = "pnode1-" + strings.Repeat("aZ0_-", 19)

// modules reads a drawn code back, dark ones as true.
func modules(t *testing.T, drawn string) (rows [][]bool) {
	t.Helper()
	for line := range strings.Lines(drawn) {
		var top, bottom []bool
		for _, r := range strings.TrimSuffix(line, "\n") {
			top = append(top, r == ' ' || r == '▄')
			bottom = append(bottom, r == ' ' || r == '▀')
			if !strings.ContainsRune(" ▀▄█", r) {
				t.Fatalf("%q in a code", r)
			}
		}
		rows = append(rows, top, bottom)
	}
	return rows
}

// TestTerminalDrawsEachModule, with four light ones around, in a size that a terminal of 80 columns and 24 lines has room for.
func TestTerminalDrawsEachModule(t *testing.T) {
	code, err := qrcode.New(invite, qrcode.Low)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := Terminal(invite, false)
	if err != nil {
		t.Fatal(err)
	}
	got, want := modules(t, drawn), code.Bitmap()
	if len(got) < len(want) || len(got) > len(want)+1 {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for y, row := range want {
		for x, dark := range row {
			margin := min(x, y, len(row)-1-x, len(want)-1-y) < 4
			if got[y][x] != dark || margin && dark {
				t.Fatalf("module %d of row %d: dark %v, want %v", x, y, got[y][x], dark)
			}
		}
	}
	if !want[4][4] || want[5][5] || !want[6][6] { // a corner of the pattern by which readers find a code
		t.Error("no finder pattern in the corner")
	}
	if lines := strings.Count(drawn, "\n"); lines > 23 || len(got[0]) > 80 {
		t.Errorf("%d lines of %d characters", lines, len(got[0]))
	}
}

// TestTerminalColours: each line has them and gives them back, and is the same without.
func TestTerminalColours(t *testing.T) {
	bare, err := Terminal(invite, false)
	if err != nil {
		t.Fatal(err)
	}
	coloured, err := Terminal(invite, true)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(coloured) {
		if !strings.HasPrefix(line, colours) || !strings.HasSuffix(line, reset+"\n") {
			t.Errorf("%q", line)
		}
	}
	if strings.NewReplacer(colours, "", reset, "").Replace(coloured) != bare {
		t.Error("colours change the code")
	}
}

// TestTerminalRefusesWhatIsTooLong for any code, and takes the longest invite.
func TestTerminalRefusesWhatIsTooLong(t *testing.T) {
	if _, err := Terminal(strings.Repeat("x", 4000), false); err == nil || !strings.Contains(err.Error(), "4000 bytes") {
		t.Error(err)
	}
	longest, err := Terminal(strings.Repeat("x", 1024), false)
	if width := utf8.RuneCountInString(strings.SplitN(longest, "\n", 2)[0]); err != nil || width > 140 {
		t.Errorf("%d characters wide, %v", width, err)
	}
}
