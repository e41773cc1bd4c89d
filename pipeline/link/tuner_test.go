package link

import (
	"math/rand/v2"
	"testing"
	"time"
)

// climb feeds n samples of a line on which each connection brings at most per of the line's
// rate, both in bytes a second, with some noise; changes counts how often the number that is
// wanted changed in the second half.
func climb(s *tuner, n int, line, per float64) (mean float64, changes int) {
	r := rand.New(rand.NewPCG(1, 2))
	sum, last := 0.0, s.want()
	for i := range n {
		up := s.want()
		if up != last && i > n/2 {
			changes++
		}
		last = up
		g := min(line, float64(up)*per) * (0.97 + 0.06*r.Float64())
		sum += g
		held := time.Duration(0)
		if float64(up)*per < line {
			held = time.Second // otherwise it is the line that messages wait for
		}
		s.sample(uint64(g), time.Second, held, up)
	}
	return sum / float64(n), changes
}

func TestSteeringClimbsToTheLine(t *testing.T) {
	for _, c := range []struct {
		name             string
		line, per        float64
		fewest, most     int
		start, withinMax int
	}{
		{"a clean line needs one", 12.5e6, 12e6, 1, 1, 1, 40},
		{"half of it", 12.5e6, 6e6, 2, 2, 1, 40},
		{"a lossy line needs all", 12.5e6, 0.75e6, 16, 16, 1, 40},
		{"a good line that was lossy", 12.5e6, 12e6, 1, 1, 16, 400},
	} {
		s := newTuner(c.start)
		climb(s, c.withinMax, c.line, c.per)
		if s.settled < c.fewest || s.settled > c.most {
			t.Errorf("%s: settled at %d, want %d to %d", c.name, s.settled, c.fewest, c.most)
		}
		if mean, changes := climb(s, 2000, c.line, c.per); changes > 2*2000/lastRest+2 || mean < 0.9*min(c.line, c.per*float64(c.most)) {
			t.Errorf("%s: %d changes and a mean of %.0f once settled", c.name, changes, mean)
		}
	}
}

func TestSteeringWaitsForConnections(t *testing.T) {
	s := newTuner(1)
	for range trialFirst + trialCounts {
		s.sample(1e6, time.Second, time.Second, 1)
	}
	if s.want() != 2 {
		t.Fatalf("wants %d", s.want())
	}
	for range lastRest {
		s.sample(1e6, time.Second, time.Second, 1)
	}
	if s.want() != 2 {
		t.Error("a trial was judged whose connection is not up")
	}
	s.sample(1e6, time.Second, time.Second, 1)
	if s.want() != 1 || s.settled != 1 {
		t.Errorf("wants %d though no second connection comes up", s.want())
	}
}

// TestSteeringLeavesWellAlone: where no window holds messages back, no more connections are
// tried, and fewer are.
func TestSteeringLeavesWellAlone(t *testing.T) {
	s := newTuner(4)
	most := 0
	for range 1000 {
		s.sample(1e6, time.Second, time.Second/2, s.want())
		most = max(most, s.want())
	}
	if most > 4 || s.want() != 1 {
		t.Errorf("up to %d connections, %d in the end", most, s.want())
	}
}
