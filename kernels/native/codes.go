package native

import (
	"cmp"
	"errors"
	"fmt"
)

// Codes are the results of a library's functions that its caller knows.
type Codes[C ~int32] map[C]Code

// Code is the name of a result, what a user can do about it, if anything, and what its error wraps, if
// anything.
type Code struct {
	Name, Remedy string
	Is           error
}

// Text is a result for people: "CUDA_ERROR_LAUNCH_TIMEOUT (702): a display's watchdog ended a kernel".
func (c Codes[C]) Text(code C) string {
	known := c[code]
	text := fmt.Sprintf("%s (%d)", cmp.Or(known.Name, "error"), int32(code))
	if known.Remedy != "" {
		text += ": " + known.Remedy
	}
	return text
}

// Err is the error of a function of a library with a result, which says both; nil for 0.
func (c Codes[C]) Err(library string, function fmt.Stringer, code C) error {
	if code == 0 {
		return nil
	}
	text := fmt.Sprintf("%s: %v: %s", library, function, c.Text(code))
	if is := c[code].Is; is != nil {
		return fmt.Errorf("%w: %s", is, text)
	}
	return errors.New(text)
}
