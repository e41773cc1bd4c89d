package qrcode

import (
	"fmt"
	"strings"

	"github.com/skip2/go-qrcode"
)

// The colours of light modules on dark ones, as a terminal of 256 colours takes them: a code is white on black whatever its theme is.
const (
	colours = "\x1b[38;5;231;48;5;16m"
	reset   = "\x1b[0m"
)

// halves are the characters of two modules, one above the other: light modules are drawn, so that the code is right on a dark terminal
// without colours too.
var halves = map[[2]bool]string{
	{true, true}: " ", {true, false}: "▄", {false, true}: "▀", {false, false}: "█",
}

// Modules returns the rows of a code, dark modules as true, with the margin of four light ones that readers need. It fails for a text that is too
// long for a code.
func Modules(text string) ([][]bool, error) {
	code, err := qrcode.New(text, qrcode.Low) // a screen is clean: fewer modules are easier to read than more redundancy
	if err != nil {
		return nil, fmt.Errorf("qrcode: %d bytes: %w", len(text), err)
	}
	return code.Bitmap(), nil
}

// Terminal returns the lines of a code, each a character for two rows of modules. coloured adds escape sequences for a terminal. It fails as
// Modules does.
func Terminal(text string, coloured bool) (string, error) {
	dark, err := Modules(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for y := 0; y < len(dark); y += 2 {
		if coloured {
			b.WriteString(colours)
		}
		for x := range dark[y] {
			below := y+1 < len(dark) && dark[y+1][x]
			b.WriteString(halves[[2]bool{dark[y][x], below}])
		}
		if coloured {
			b.WriteString(reset)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}
