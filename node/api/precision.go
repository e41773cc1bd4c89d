package api

import (
	"fmt"
	"strconv"
)

// PrecisionText compares a held-out loss with the one in float32 throughout: the difference is the
// cost of stages and of boundaries between stages in lower precision. It is empty where one of the
// two losses is nil or not finite.
func PrecisionText(heldOut, f32 *float64, digits int) string {
	if heldOut == nil || f32 == nil {
		return ""
	}
	cost := *heldOut - *f32
	if finite(&cost) == nil {
		return ""
	}
	// A sign and two digits that matter, without an exponent.
	short, _ := strconv.ParseFloat(strconv.FormatFloat(cost, 'g', 2, 64), 64) // reads what that writes
	text := strconv.FormatFloat(short, 'f', -1, 64)
	if text[0] != '-' {
		text = "+" + text
	}
	return fmt.Sprintf("float32 throughout: %.*f, lower precision costs %s", digits, *f32, text)
}
