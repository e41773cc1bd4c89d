package draw

import (
	"strconv"

	"pnode/pipeline/schedule"
)

// units of time, the largest first.
var units = []struct {
	size schedule.Nanos
	name string
}{{1_000_000_000, "s"}, {1_000_000, "ms"}, {1_000, "µs"}, {1, "ns"}}

// ticks chooses steps of 1, 2 or 5 times a power of ten, at most so many up to the end, and
// the unit in which they are named.
func ticks(end schedule.Nanos, most int) (tick, unit schedule.Nanos, name string) {
	tick = 1
	for factor := 0; end/tick > schedule.Nanos(max(most, 2)); factor++ {
		if factor%3 == 1 {
			tick = tick / 2 * 5
		} else {
			tick *= 2
		}
	}
	for _, u := range units {
		if unit, name = u.size, u.name; end >= 2*u.size {
			break
		}
	}
	return tick, unit, name
}

// time is a duration in the unit of the axis, to three digits behind the point.
func (p *picture) time(t schedule.Nanos) string {
	return strconv.FormatFloat(float64(int64(float64(t)/float64(p.unit)*1000+0.5))/1000, 'f', -1, 64) + " " + p.unitName
}
