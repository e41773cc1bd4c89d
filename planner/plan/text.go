package plan

import (
	"fmt"

	"pnode/pipeline/schedule"
)

// Time prints a time with three or more significant digits.
func Time(n schedule.Nanos) string {
	switch {
	case n >= 100e9:
		return fmt.Sprintf("%d s", n/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%d.%02d s", n/1e9, n%1e9/1e7)
	case n >= 1e6:
		return fmt.Sprintf("%d.%02d ms", n/1e6, n%1e6/1e4)
	default:
		return fmt.Sprintf("%d.%02d us", n/1e3, n%1e3/10)
	}
}

// Size prints bytes with one digit after the point.
func Size(bytes int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= u.unit {
			return fmt.Sprintf("%d.%d %s", bytes/u.unit, bytes%u.unit*10/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// Bandwidth prints bytes a second the way links are sold.
func Bandwidth(bytesPerS int64) string {
	switch bits := 8 * min(bytesPerS, 1<<59); {
	case bits >= 1e9:
		return fmt.Sprintf("%d.%d Gbit/s", bits/1e9, bits%1e9/1e8)
	case bits >= 1e6:
		return fmt.Sprintf("%d.%d Mbit/s", bits/1e6, bits%1e6/1e5)
	default:
		return fmt.Sprintf("%d kbit/s", bits/1e3)
	}
}
