package link

import "testing"

// lighter reports whether a test may send less: in a quick run under the race detector. There goroutines have to meet, and more
// bytes have no more of them meet.
func lighter() bool { return raced && testing.Short() }

// lessOf returns a part of a count where a test may send less.
func lessOf(n int) int {
	if lighter() {
		return n * 2 / 5
	}
	return n
}

// slower returns a line that takes as long for lessOf messages as the given one for all of them.
func slower(s LinkConditions) LinkConditions {
	s.BytesPerS = int64(lessOf(int(s.BytesPerS)))
	return s
}

// figuresOnly skips a test of what lines carry where more bytes find nothing. It names tests that start the same goroutines.
func figuresOnly(t *testing.T, others string) {
	t.Helper()
	if lighter() {
		t.Skipf("sends much to measure what a line carries; %s start the same goroutines", others)
	}
}
