package link

import "time"

// How stripes are chosen. A sample is what was acknowledged while something was under way;
// those of a trial are taken when its connections are up and the first sample, in which
// congestion windows open, is over.
const (
	sampleTime  = time.Second
	sampleBytes = 1 << 20
	trialFirst  = 1 // samples left out at the beginning of a trial
	trialCounts = 2 // samples that are measured
	// firstRest samples pass after a trial that brought nothing, then twice as many, up to
	// lastRest.
	firstRest = 16
	lastRest  = 256
	// Windows limit goodput when messages are held back by them for more than heldParts parts
	// of heldParts+1. The line has room while the queue on it is short: below heldQueue, or a
	// quarter of the round trip.
	heldParts = 3
	heldQueue = 25 * time.Millisecond
)

// steering chooses over how many connections messages are spread. A connection's congestion
// window halves with each loss, so that on a long line that loses packets for other reasons
// than being full a single one stays far below the line's rate; several of them get more, up
// to the line. It climbs: twice the number is tried, and kept if goodput grows by more than
// a tenth; half of it is kept if goodput falls by less than a twentieth. What a trial compares
// with is measured just before it.
//
// More are tried where messages wait for a window while the line has room, fewer where they do
// not. A window that nothing waits for carries no more when there are two of it, and what a new
// connection takes before its window has opened comes late: at 300 ms a single message can hold
// up a pipeline.
//
// It is pure: the same samples lead to the same choices.
type tuner struct {
	settled int // settled
	goodput int64
	trial   int // being tried; 0 is none
	seen    int // samples since the last change
	bytes   uint64
	took    time.Duration
	held    time.Duration // of took
	rest    int           // samples before the next trial
	pause   int           // length of the rest after the next failure
}

func newTuner(stripes int) *tuner {
	return &tuner{settled: min(max(1, stripes), maxSpread), pause: firstRest}
}

// want is how many connections there are to be.
func (s *tuner) want() int {
	if s.trial != 0 {
		return s.trial
	}
	return s.settled
}

// sample takes in one sample, of `up` connections in use. For a part of the time that it took
// messages were held back by windows rather than by the line.
func (s *tuner) sample(bytes uint64, took, held time.Duration, up int) {
	if up < s.want() && s.seen == 0 {
		if s.rest++; s.rest > lastRest { // they do not come up
			s.fail()
		}
		return
	}
	s.seen++
	if s.seen <= trialFirst {
		return
	}
	s.bytes, s.took, s.held = s.bytes+bytes, s.took+took, s.held+held
	if s.seen < trialFirst+trialCounts {
		return
	}
	goodput := int64(float64(s.bytes) / s.took.Seconds())
	if s.trial != 0 {
		s.judge(goodput)
		return
	}
	s.goodput = goodput
	limited := s.held > s.took*heldParts/(heldParts+1)
	s.clear()
	s.seen = trialFirst // the next measurement begins at once
	if s.rest -= trialCounts; s.rest <= 0 {
		s.try(limited)
	}
}

// try begins a trial, if there is one to be made: of more connections where windows limit
// goodput, of fewer where they do not.
func (s *tuner) try(limited bool) {
	trial := s.settled / 2
	if limited {
		trial = 2 * s.settled
	}
	if trial >= 1 && trial <= maxSpread {
		s.trial, s.rest = trial, 0
		s.clear()
	}
}

// clear begins a measurement.
func (s *tuner) clear() { s.seen, s.bytes, s.took, s.held = 0, 0, 0, 0 }

// judge ends a trial.
func (s *tuner) judge(goodput int64) {
	better := s.trial > s.settled && goodput > s.goodput+s.goodput/10
	cheaper := s.trial < s.settled && goodput > s.goodput-s.goodput/20
	if !better && !cheaper {
		s.fail()
		return
	}
	s.settled, s.goodput, s.pause, s.trial = s.trial, goodput, firstRest, 0
	s.clear()
	s.try(better)
}

// fail goes back to the settled number for a rest.
func (s *tuner) fail() {
	s.trial = 0
	s.clear()
	s.rest, s.pause = s.pause, min(2*s.pause, lastRest)
}
