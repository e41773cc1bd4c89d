package plain

import (
	"runtime"
	"strings"
)

// Quote returns a path as one word of a command line that a person pastes into a shell: as it is where it has no character that the
// shell reads as something else, else in quotes.
func Quote(path string) string { return quote(path, runtime.GOOS) }

func quote(path, goos string) string {
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return needsQuotes(r, goos) }) < 0 {
		return path
	}
	if goos == "windows" { // no file name there has a double quote
		return `"` + path + `"`
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func needsQuotes(r rune, goos string) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r > 0x7f:
		return false
	case goos == "windows" && r == '\\':
		return false
	}
	return !strings.ContainsRune("/._-+:,@%=", r)
}
