package tokenizer

import "golang.org/x/text/unicode/norm"

// appendNFC appends text in Unicode's normalization form C; stray bytes stay. There is one
// deliberate difference from the reference, whose table of compositions looks at the lower
// 16 bits of a character only: there U+E0041 and U+0301 become U+00C1.
func appendNFC(dst, text []byte) []byte { return norm.NFC.Append(dst, text...) }
