package mux

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"pnode/swarm/transport"
)

const (
	// maxPings bounds the PINGs that are under way.
	maxPings = 16
	// pingMost and pingLeast are the most and the least time between two PINGs.
	pingMost  = time.Second
	pingLeast = 10 * time.Millisecond
	// unsentTime is how much the kernel may hold that it has not sent, as the time that the line takes for it; bounds
	// in bytes.
	unsentTime  = 5 * time.Millisecond
	unsentLeast = recordBytes
	unsentFirst = 128 << 10
	unsentMost  = 1 << 20
	recordLeast = 2 << 10
	// What may be on the way where the kernel does not bound it: at first, and what comes on top of two round trips.
	flightFirst = 256 << 10
	flightQueue = 100 * time.Millisecond
	// rateKept is how many round trips the best rate counts for.
	rateKept = 10
)

// pings measures round trips and what is on the way, as a PONG shows it. The connection's mu guards it but for results.
type pings struct {
	count     int // sent
	under     []ping
	last      time.Time // when the newest was sent
	lastData  uint64    // DATA sent until then
	fresh     bool      // the newest has not been written yet
	waiting   []time.Time
	answers   []answer // of the last round trip and a half, the oldest first
	delivered uint64   // bytes that the peer has read
	unsent    int      // bytes that the kernel may hold unsent; 0 is not known

	bounded  bool // flight holds
	flight   uint64
	limited  bool    // something waited because of flight
	rate     float64 // bytes a second, the best of late
	rateTime time.Time

	results struct{ least, latest, smoothed, deviation, window atomic.Int64 }
}

// ping records a PING that is under way.
type ping struct {
	at      time.Time
	surplus time.Duration // what the line took for what the kernel held before it
}

// answer records what a PONG has said.
type answer struct {
	at   time.Time
	read uint64
}

func (p *pings) smoothed() time.Duration { return time.Duration(p.results.smoothed.Load()) }

func (p *pings) stats() transport.Stats {
	return transport.Stats{
		MinRTT:    time.Duration(p.results.least.Load()),
		LatestRTT: time.Duration(p.results.latest.Load()), SmoothedRTT: p.smoothed(),
		MeanDeviation:    time.Duration(p.results.deviation.Load()),
		CongestionWindow: uint64(p.results.window.Load()),
	}
}

// next returns when the next PING is due, after data bytes of DATA in all.
func (p *pings) next(data uint64, streams bool) time.Time {
	switch {
	case p.count == 0:
		return time.Time{}
	case len(p.under) >= maxPings || data == p.lastData && !streams:
		return p.last.Add(time.Hour)
	case p.bounded && data-p.lastData >= max(p.flight, flightFirst)/8: // what waits for PONG must not go in bursts
		return p.last
	case data != p.lastData:
		return p.last.Add(min(max(pingLeast, p.smoothed()/2), pingMost))
	}
	return p.last.Add(pingMost)
}

func (p *pings) appendPing(b []byte, now time.Time, data uint64) []byte {
	p.count++
	p.under = append(p.under, ping{at: now})
	p.last, p.lastData, p.fresh = now, data, true
	return appendHeader(b, header{kind: kindPing})
}

// left notes that the socket has taken the newest PING.
func (p *pings) left(now time.Time, s *socket) {
	p.fresh = false
	var surplus time.Duration
	if s != nil {
		window, unsent, ok := s.look()
		if ok {
			p.results.window.Store(int64(window))
		}
		if rtt := p.smoothed(); ok && rtt > 0 {
			rate := float64(window) / rtt.Seconds()
			surplus = time.Duration(float64(unsent) / rate * float64(time.Second))
			p.unsent = int(min(max(rate*unsentTime.Seconds(), unsentLeast), unsentMost))
			s.bound(p.unsent)
		}
	}
	if n := len(p.under); n > 0 { // no answer yet
		p.under[n-1] = ping{now, surplus}
	}
}

// asked notes a PING of the peer and reports whether it may have sent it.
func (p *pings) asked(now time.Time) bool {
	p.waiting = append(p.waiting, now)
	return len(p.waiting) <= maxPings
}

// appendPongs answers the peer's PINGs; read is what was read from the line.
func (p *pings) appendPongs(b []byte, read uint64, now time.Time) []byte {
	for _, at := range p.waiting {
		b = appendHeader(b, header{kind: kindPong, length: pongBytes})
		b = binary.BigEndian.AppendUint64(b, read)
		b = binary.BigEndian.AppendUint64(b, uint64(now.Sub(at)/time.Microsecond))
	}
	p.waiting = p.waiting[:0]
	return b
}

// answered takes in a PONG: what the peer has read of the bytes sent, and how long it took to answer, in µs.
func (p *pings) answered(read, delay, sent uint64, now time.Time) error {
	if len(p.under) == 0 {
		return fmt.Errorf("%w: PONG without a PING", errFault)
	}
	if read > sent || read < p.delivered {
		return fmt.Errorf("%w: PONG of %d bytes read, %d were sent and %d read before", errFault, read, sent, p.delivered)
	}
	asked := p.under[0]
	p.under = append(p.under[:0], p.under[1:]...)
	p.delivered = read
	trip := max(now.Sub(asked.at), time.Microsecond)
	delay = min(delay, uint64(trip/time.Microsecond))
	p.measured(trip, asked.surplus+time.Duration(delay)*time.Microsecond)
	p.flow(now, read)
	return nil
}

// measured takes in a round trip, of which the last part was spent in the ends rather than on the line (RFC 9002,
// section 5.3).
func (p *pings) measured(trip, ends time.Duration) {
	r := &p.results
	first := r.least.Load() == 0
	if first || int64(trip) < r.least.Load() {
		r.least.Store(int64(trip))
	}
	trip = max(trip-ends, min(trip, time.Duration(r.least.Load())))
	r.latest.Store(int64(trip))
	if first {
		r.smoothed.Store(int64(trip))
		r.deviation.Store(int64(trip / 2))
		return
	}
	off := int64((p.smoothed() - trip).Abs())
	r.deviation.Store((3*r.deviation.Load() + off) / 4)
	r.smoothed.Store((7*r.smoothed.Load() + int64(trip)) / 8)
}

// flow derives from a PONG what may be on the way.
func (p *pings) flow(now time.Time, read uint64) {
	p.answers = append(p.answers, answer{now, read})
	rtt := max(p.smoothed(), pingLeast)
	old := p.answers[0]
	for len(p.answers) > 1 && now.Sub(p.answers[1].at) >= rtt {
		p.answers = append(p.answers[:0], p.answers[1:]...)
		old = p.answers[0]
	}
	if took := now.Sub(old.at); took >= rtt/2 {
		rate := float64(read-old.read) / took.Seconds()
		if rate > p.rate || p.limited && now.Sub(p.rateTime) > rateKept*rtt {
			p.rate, p.rateTime = rate, now
		}
	}
	p.limited = false
	least := time.Duration(p.results.least.Load())
	p.flight = max(flightFirst, uint64(p.rate*(2*least+flightQueue).Seconds()))
	if p.unsent == 0 {
		p.results.window.Store(int64(p.flight))
	}
}

// room returns how many more bytes may be sent after sent of them.
func (p *pings) room(sent uint64) int {
	if !p.bounded {
		return recordBytes
	}
	may := max(p.flight, flightFirst) + p.delivered
	if may < sent+recordLeast {
		p.limited = true
		return 0
	}
	return int(min(may-sent, recordBytes))
}

// record returns the most bytes to write at once: on a slow line less than a record, so that what is urgent waits for
// little.
func (p *pings) record() int {
	if p.unsent == 0 {
		return recordBytes
	}
	return min(max(p.unsent, recordLeast), recordBytes)
}
