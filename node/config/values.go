package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Count is a number of replicas or stages; 0 is "auto".
type Count int

const (
	auto = "auto"
	off  = "off"
)

// String returns the number or "auto".
func (c Count) String() string {
	if c == 0 {
		return auto
	}
	return strconv.Itoa(int(c))
}

// Set reads "auto" or a number from 1.
func (c *Count) Set(text string) error {
	if text == auto {
		*c = 0
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fmt.Errorf("%q: want auto, or a number from 1", text)
	}
	*c = Count(n)
	return nil
}

// Type names the values for a flag's help.
func (*Count) Type() string { return "N|auto" }

// Bytes is a size.
type Bytes int64

// Decimal sizes.
const (
	KB Bytes = 1000
	MB       = 1000 * KB
	GB       = 1000 * MB
)

// sizeUnits from large to small; the empty one is last.
var sizeUnits = []struct {
	suffix string
	bytes  Bytes
}{
	{"TiB", 1 << 40},
	{"TB", 1000 * GB},
	{"GiB", 1 << 30},
	{"GB", GB},
	{"MiB", 1 << 20},
	{"MB", MB},
	{"KiB", 1 << 10},
	{"KB", KB},
	{"B", 1},
	{"", 1},
}

// String returns the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range sizeUnits[:len(sizeUnits)-1] {
		if b != 0 && b%u.bytes == 0 {
			return strconv.FormatInt(int64(b/u.bytes), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Set reads a whole number with an optional unit: B, KB, MB, GB, TB (powers of 1000) or
// KiB, MiB, GiB, TiB (powers of 1024), in either case.
func (b *Bytes) Set(text string) error {
	for _, u := range sizeUnits {
		number, ok := cutSuffixFold(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/int64(u.bytes) {
			break
		}
		*b = Bytes(n) * u.bytes
		return nil
	}
	return fmt.Errorf("%q: want a size such as 500KB, 16MB or 2GiB", text)
}

func cutSuffixFold(text, suffix string) (string, bool) {
	cut := len(text) - len(suffix)
	if cut < 0 || !strings.EqualFold(text[cut:], suffix) {
		return text, false
	}
	return text[:cut], true
}

// Type names the values for a flag's help.
func (*Bytes) Type() string { return "SIZE" }
