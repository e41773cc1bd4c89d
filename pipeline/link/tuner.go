package link

import (
	"time"

	"pnode/swarm/transport"
)

// How the number of connections is chosen. A sample is what was acknowledged while something was
// under way. The samples of a trial are taken when its connections are up and the first sample, in
// which congestion windows open, is over.
const (
	sampleTime  = time.Second
	sampleBytes = 1 << 20
	trialFirst  = 1 // samples left out at the beginning of a trial
	trialCounts = 2 // samples that are measured
	// firstRest samples pass after a trial that brought nothing, then twice as many, up to lastRest.
	firstRest = 16
	lastRest  = 256
	// Windows limit goodput when messages are held back by them for more than heldParts parts of
	// heldParts+1. The line has room while the queue on it is short: below heldQueue, or a quarter of
	// the round trip.
	heldParts = 3
	heldQueue = 25 * time.Millisecond
)

// tuner chooses over how many connections messages are spread. A connection's congestion window halves
// with each loss, so that on a long line that loses packets for other reasons than being full a single
// one stays far below the line's rate; several of them get more, up to the line. It climbs: twice the
// number is tried, and kept if goodput grows by more than a tenth; half of it is kept if goodput falls
// by less than a twentieth. A trial is compared with a measurement just before it.
//
// More are tried where messages wait for a window while the line has room, fewer where they do not. A
// window that nothing waits for carries no more when there are two of it. What a new connection takes
// before its window has opened comes late: at 300 ms a single message can hold up a pipeline.
//
// It is pure: the same samples lead to the same choices.
type tuner struct {
	settled int
	goodput int64
	trial   int // being tried; 0 is none
	seen    int // samples since the last change
	bytes   uint64
	took    time.Duration
	held    time.Duration // of took
	rest    int           // samples before the next trial
	pause   int           // length of the rest after the next failure
}

func newTuner(connections int) *tuner {
	return &tuner{settled: min(max(1, connections), maxSpread), pause: firstRest}
}

// want returns how many connections there are to be.
func (t *tuner) want() int {
	if t.trial != 0 {
		return t.trial
	}
	return t.settled
}

// sample takes in one sample, of `up` connections in use. For the time held, a part of took, messages
// were held back by windows rather than by the line.
func (t *tuner) sample(bytes uint64, took, held time.Duration, up int) {
	if up < t.want() && t.seen == 0 {
		if t.rest++; t.rest > lastRest { // they do not come up
			t.fail()
		}
		return
	}
	t.seen++
	if t.seen <= trialFirst {
		return
	}
	t.bytes, t.took, t.held = t.bytes+bytes, t.took+took, t.held+held
	if t.seen < trialFirst+trialCounts {
		return
	}
	goodput := int64(float64(t.bytes) / t.took.Seconds())
	if t.trial != 0 {
		better := t.trial > t.settled && goodput > t.goodput+t.goodput/10
		cheaper := t.trial < t.settled && goodput > t.goodput-t.goodput/20
		if !better && !cheaper {
			t.fail()
			return
		}
		t.settled, t.goodput, t.pause, t.trial = t.trial, goodput, firstRest, 0
		t.clear()
		t.try(better)
		return
	}
	t.goodput = goodput
	limited := t.held > t.took*heldParts/(heldParts+1)
	t.clear()
	t.seen = trialFirst // the next measurement begins at once
	if t.rest -= trialCounts; t.rest <= 0 {
		t.try(limited)
	}
}

// try begins a trial, if there is one to be made: of more connections where windows limit goodput, of
// fewer where they do not.
func (t *tuner) try(limited bool) {
	trial := t.settled / 2
	if limited {
		trial = 2 * t.settled
	}
	if trial >= 1 && trial <= maxSpread {
		t.trial, t.rest = trial, 0
		t.clear()
	}
}

// clear begins a measurement.
func (t *tuner) clear() { t.seen, t.bytes, t.took, t.held = 0, 0, 0, 0 }

// fail goes back to the settled number for a rest.
func (t *tuner) fail() {
	t.trial = 0
	t.clear()
	t.rest, t.pause = t.pause, min(2*t.pause, lastRest)
}

// sample sums up what the peer has acknowledged, and the time that it took.
type sample struct {
	bytes      uint64
	busy, held time.Duration
}

// tune hands the tuner a sample when there is enough of it.
func (r *remote) tune() {
	now := sample{busy: r.busy.total(), held: r.held.total()}
	for _, o := range r.outboxes {
		acked, _, _ := o.state()
		now.bytes += acked
	}
	bytes, took := now.bytes-r.sampled.bytes, now.busy-r.sampled.busy
	if took < sampleTime || bytes < sampleBytes {
		return
	}
	held := now.held - r.sampled.held
	r.sampled = now
	r.tuner.sample(bytes, took, held, len(r.connections))
	if want := int32(r.tuner.want()); r.want.Swap(want) != want {
		r.session.endpoint.log.Debug("connections", "peer", r.id, "want", want, "goodput", r.tuner.goodput)
		r.stir()
	}
}

// noteHeld derives from a connection's newest round trip whether its window holds messages back.
func (r *remote) noteHeld(c transport.Stats) {
	some := false
	for _, o := range r.outboxes {
		_, _, waiting := o.state()
		some = some || waiting
	}
	r.held.set(some && c.LatestRTT-c.MinRTT < max(heldQueue, c.MinRTT/4))
}
