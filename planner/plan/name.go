package plan

import "strings"

// MaxNameBytes bounds a machine's name.
const MaxNameBytes = 63

// ValidName reports whether text can name a machine: 1 to MaxNameBytes letters, digits, dots, hyphens and
// underscores of ASCII.
func ValidName(text string) bool {
	return text != "" && len(text) <= MaxNameBytes && text == NameFrom(text)
}

// NameFrom returns a name like text: without the characters that no name has, cut where it is too long. It is
// empty where nothing is left.
func NameFrom(text string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_':
			return r
		default:
			return -1
		}
	}, text)
	return name[:min(len(name), MaxNameBytes)]
}
