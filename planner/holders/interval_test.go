package holders

import (
	"math"
	"testing"
)

const second, hour = int64(1e9), int64(3600e9)

// TestCadence: what decides how often checkpoints are made.
func TestCadence(t *testing.T) {
	const mega = int64(1e6)
	lostEvery := func(nanos int64) Rate { return Rate{SeenNanos: 1000 * nanos, Losses: 1000} }
	burst := Rate{SeenNanos: hour, Losses: 2, AgoNanos: []int64{second, 20 * second}}
	for _, c := range []struct {
		name   string
		of     Checkpoint
		losses Rate
		want   Cadence
	}{
		{"a small state: a short replay", Checkpoint{StateBytes: 5 * mega, TookNanos: 260e6}, Rate{}, Cadence{EveryNanos: 5 * second, TookNanos: 260e6, LostNanos: 15e6, Why: ForReplay}},
		{"nothing is known", Checkpoint{}, Rate{}, Cadence{EveryNanos: 5 * second, TookNanos: 0, LostNanos: 10e6, Why: ForReplay}},
		{"steps lose more than they should", Checkpoint{StateBytes: 5 * mega, TookNanos: second, LostNanos: 200e6}, Rate{}, Cadence{EveryNanos: 20 * second, TookNanos: second, LostNanos: 200e6, Why: ForSteps}},
		{"a large state", Checkpoint{StateBytes: 990 * mega, TookNanos: 10 * second}, Rate{}, Cadence{EveryNanos: 30 * second, TookNanos: 10 * second, LostNanos: second, Why: ForMost}},
		{"a checkpoint of six seconds", Checkpoint{StateBytes: 5 * mega, TookNanos: 6 * second, LostNanos: 6 * second}, Rate{}, Cadence{EveryNanos: 120 * second, TookNanos: 6 * second, LostNanos: 6 * second, Why: ForCost}},
		{"a larger state", Checkpoint{StateBytes: 12490 * mega, TookNanos: 60 * second}, Rate{}, Cadence{EveryNanos: 250 * second, TookNanos: 60 * second, LostNanos: 12500e6, Why: ForCost}},
		{"a slow line", Checkpoint{StateBytes: 45 * mega, TookNanos: 38 * second}, Rate{}, Cadence{EveryNanos: 76 * second, TookNanos: 38 * second, LostNanos: 55e6, Why: ForLines}},
		{"a slow line and losses", Checkpoint{StateBytes: 45 * mega, TookNanos: 38 * second}, burst, Cadence{EveryNanos: 76 * second, TookNanos: 38 * second, LostNanos: 55e6, Why: ForLines}},
		{"losses", Checkpoint{StateBytes: 990 * mega, TookNanos: 2 * second}, lostEvery(200 * second), Cadence{EveryNanos: 20088 * milli, TookNanos: 2 * second, LostNanos: second, Why: ForLosses}},
		{"none was lost, and saves cost more than they are worth", Checkpoint{StateBytes: 99990 * mega}, Rate{}, Cadence{EveryNanos: 1697056 * milli, TookNanos: 0, LostNanos: 100 * second, Why: ForRisk}},
		{"a burst of losses", Checkpoint{StateBytes: 5 * mega, TookNanos: 260e6}, burst, Cadence{EveryNanos: LeastNanos, TookNanos: 260e6, LostNanos: 15e6, Why: ForLeast}},
		{"beyond sense", Checkpoint{1 << 62, 1 << 62, 1 << 62}, Rate{SeenNanos: math.MaxInt64}, Cadence{EveryNanos: busyShare * mostMillis * milli, TookNanos: mostMillis * milli, LostNanos: mostMillis*milli + 10e6, Why: ForLines}},
		{"below it", Checkpoint{-1, -1, -1}, Rate{SeenNanos: -1, Losses: math.MaxInt}, Cadence{EveryNanos: LeastNanos, TookNanos: 0, LostNanos: 10e6, Why: ForLeast}},
	} {
		got := c.of.Cadence(c.losses)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if !got.Why.Valid() {
			t.Errorf("%s: no words for %q", c.name, got.Why)
		}
	}
	last := int64(0)
	for lost := int64(0); lost < 10*second; lost += second / 70 {
		every := Checkpoint{LostNanos: lost}.Cadence(Rate{}).EveryNanos
		if every < last {
			t.Fatalf("checkpoints that cost steps %d ns are made more often than cheaper ones", lost)
		}
		if last = every; every > max(mostReplayNanos, mostLostShare*lost+mostLostShare*savedNanos) {
			t.Fatalf("a checkpoint that costs steps %d ns is made every %d ns", lost, every)
		}
	}
	for _, c := range [][3]int64{{10, 3, 4}, {9, 3, 3}, {1, 3, 1}, {0, 0, 1}} {
		if got := (Cadence{EveryNanos: c[0]}).Steps(c[1]); int64(got) != c[2] {
			t.Errorf("%d steps in %d ns of %d, want %d", got, c[0], c[1], c[2])
		}
	}
}

// TestTheTimeInTheBackgroundCostsNoSteps: how long a checkpoint takes there moves nothing while lines and disks are idle for as long.
func TestTheTimeInTheBackgroundCostsNoSteps(t *testing.T) {
	for took := int64(0); took <= replayNanos/busyShare; took += second / 10 {
		if got := (Checkpoint{StateBytes: 5e6, TookNanos: took}).Cadence(Rate{}); got.EveryNanos != replayNanos {
			t.Errorf("a checkpoint of %d ms in the background: every %d ms, want %d", took/milli, got.EveryNanos/milli, replayNanos/milli)
		}
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
