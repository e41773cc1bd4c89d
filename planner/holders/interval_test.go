package holders

import (
	"math"
	"testing"
)

const second, hour = int64(1e9), int64(3600e9)

// TestEvery: the interval of Young's rule within its bounds.
func TestEvery(t *testing.T) {
	for _, c := range []struct {
		name               string
		took, losses, want int64
	}{
		{"losses decide", 10 * second, hour, 84_852e6}, // the root of 2 x a tenth of 10 s x 3600 s
		{"they are rare: a hundredth of the time", 10 * second, 1000 * hour, 990 * second},
		{"they are frequent: half of it", 10 * second, 40 * second, 10 * second},
		{"next to nothing", 1e6, hour, LeastNanos},
		{"nothing", 0, 0, LeastNanos},
		{"beyond sense", 1 << 62, 1 << 62, mostMillis * leastRests * milli},
		{"below it", -1, -1, LeastNanos},
	} {
		if got := Every(c.took, c.losses); got != c.want {
			t.Errorf("%s: every %d ns, want %d", c.name, got, c.want)
		}
	}
	last := int64(0)
	for took := int64(0); took < 100*second; took += second / 7 {
		every := Every(took, hour)
		if every < last {
			t.Fatalf("a copy of %d ns is made more often than a shorter one", took)
		}
		last = every
	}
}

func TestCopy(t *testing.T) {
	for _, c := range []struct {
		name string
		copy Copy
		want int64 // nanoseconds
	}{
		{"an idle line", Copy{StateBytes: 125e6, BytesPerS: 12_500_000}, 10 * second},
		{"a busy one", Copy{StateBytes: 125e6, BytesPerS: 12_500_000, BusyBytesPerS: 10_000_000}, 50 * second},
		{"one that steps need all of", Copy{StateBytes: 125e6, BytesPerS: 12_500_000, BusyBytesPerS: 1 << 60}, 200 * second},
		{"less than a second", Copy{StateBytes: 3, BytesPerS: 10}, 300e6},
		{"no line", Copy{StateBytes: 5}, 5 * second},
		{"beyond sense", Copy{StateBytes: 1 << 62}, 1<<63 - 1},
	} {
		if got := c.copy.Nanos(); got != c.want {
			t.Errorf("%s: %d ns, want %d", c.name, got, c.want)
		}
	}
	for _, c := range [][3]int64{{10, 3, 4}, {9, 3, 3}, {1, 3, 1}, {0, 0, 1}} {
		if got := Steps(c[0], c[1]); int64(got) != c[2] {
			t.Errorf("%d steps in %d ns of %d, want %d", got, c[0], c[1], c[2])
		}
	}
}

// TestRate: the prior holds while nothing was seen, moves with the first loss, and hardly counts after some.
func TestRate(t *testing.T) {
	const minute = 60 * second
	for _, c := range []struct {
		rate Rate
		want int64
	}{
		{Rate{}, 4 * hour},
		{Rate{SeenNanos: hour}, 12 * hour},
		{Rate{SeenNanos: 5 * minute, Losses: 1}, 280 * minute / 9},
		{Rate{SeenNanos: hour, Losses: 1}, 80 * minute},
		{Rate{SeenNanos: 10 * hour, Losses: 10}, 28 * hour / 27},
		{Rate{SeenNanos: -1, Losses: -1}, 4 * hour},
		{Rate{SeenNanos: math.MaxInt64, Losses: math.MaxInt}, 268436288},                                   // nothing overflows
		{Rate{SeenNanos: hour, Losses: 1, AgoNanos: []int64{second}}, 80 * minute},                         // one may be chance
		{Rate{SeenNanos: hour, Losses: 2, AgoNanos: []int64{second, 20 * second}}, 10 * second},            // a burst
		{Rate{SeenNanos: hour, Losses: 3, AgoNanos: []int64{60 * second, 70 * second, hour}}, 35 * second}, // that is over
		{Rate{SeenNanos: 9 * hour, Losses: 2, AgoNanos: []int64{8 * hour, 9 * hour}}, 76 * hour / 17},      // long ago
	} {
		if got := c.rate.Between(); got < c.want-8 || got > c.want+8 {
			t.Errorf("%+v: %d ns, want %d", c.rate, got, c.want)
		}
	}
}
