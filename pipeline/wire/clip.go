package wire

import "unicode/utf8"

// Clip shortens text to most bytes at most, at the end of a character.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
