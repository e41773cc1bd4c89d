package link

import (
	"time"

	"github.com/quic-go/quic-go"
)

// sample is a state of what the peer has acknowledged, and of the time it took.
type sample struct {
	bytes      uint64
	busy, held time.Duration
}

// steer hands a sample to the steering when there is enough of it.
func (r *remote) tune() {
	now := sample{busy: r.busy.total(), held: r.held.total()}
	for _, o := range r.outboxes {
		now.bytes += o.delivered()
	}
	bytes, took := now.bytes-r.sampled.bytes, now.busy-r.sampled.busy
	if took < sampleTime || bytes < sampleBytes {
		return
	}
	held := now.held - r.sampled.held
	r.sampled = now
	r.tuner.sample(bytes, took, held, len(r.connections))
	if want := int32(r.tuner.want()); r.want.Swap(want) != want {
		r.session.endpoint.log.Debug("stripes", "peer", r.id, "want", want, "goodput", r.tuner.goodput)
		r.stir()
	}
}

// noteHeld tells from what a connection has just heard whether messages are held back by its
// window.
func (r *remote) noteHeld(c quic.ConnectionStats) {
	waiting := false
	for _, o := range r.outboxes {
		waiting = waiting || o.waits()
	}
	r.held.set(waiting && c.LatestRTT-c.MinRTT < max(heldQueue, c.MinRTT/4))
}
