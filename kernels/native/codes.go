package native

import (
	"cmp"
	"fmt"
)

// Codes are the results of a library's functions that its caller knows.
type Codes[C ~int32] map[C]Code

// Code is the name of a result, and what a user can do about it, if anything.
type Code struct{ Name, Remedy string }

// Text is a result for people: "CUDA_ERROR_LAUNCH_TIMEOUT (702): a display's watchdog ended a kernel".
func (c Codes[C]) Text(code C) string {
	known := c[code]
	text := fmt.Sprintf("%s (%d)", cmp.Or(known.Name, "error"), int32(code))
	if known.Remedy != "" {
		text += ": " + known.Remedy
	}
	return text
}
