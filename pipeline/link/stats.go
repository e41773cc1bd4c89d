package link

import (
	"sync"
	"sync/atomic"
	"time"

	"pnode/planner/plan"
)

// Stats is what is known of the link to one peer since the session began; what is
// measured of the connection holds since it was made.
type Stats struct {
	Peer plan.PeerID
	// RTT is smoothed, Jitter its mean deviation (RFC 9002, section 5.3).
	RTT, MinRTT, Jitter time.Duration
	// Of the connection, with retransmissions and packet headers.
	BytesSent, BytesReceived, PacketsSent, PacketsLost uint64
	// Of the session, each message once.
	FramesSent, FramesReceived, PayloadSent, PayloadReceived uint64
	// Busy is how long at least one message was under way, from Send until it was acknowledged.
	Busy time.Duration
	// QueuedBytes of payload stood behind others and came through in QueuedTime: at the rate at
	// which the link carries more than one message.
	QueuedBytes uint64
	QueuedTime  time.Duration
	// Dropped frames had another generation; Duplicates had come before.
	Dropped, Duplicates uint64
	// Stripes are the connections in use. Resent pieces were sent again because a connection
	// broke, Repeated ones had come when they came again.
	Connections      int
	Resent, Repeated uint64
}

// Stats gives one entry for each peer, in the order given to Endpoint.Session.
func (s *Session) Stats() []Stats {
	all := make([]Stats, 0, len(s.order))
	for _, r := range s.order {
		st := Stats{
			Peer: r.id, Busy: r.busy.total(),
			FramesSent: r.counts.framesSent.Load(), PayloadSent: r.counts.payloadSent.Load(),
			FramesReceived: r.counts.framesReceived.Load(), PayloadReceived: r.counts.payloadReceived.Load(),
			Dropped: r.counts.dropped.Load(), Duplicates: r.counts.duplicates.Load(),
			Resent: r.counts.resent.Load(), Repeated: r.counts.repeated.Load(),
		}
		st.QueuedBytes, st.QueuedTime = r.queued.total()
		r.connectionStats(&st)
		all = append(all, st)
	}
	return all
}

// connectionStats adds up what is measured of the connections.
func (r *remote) connectionStats(st *Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.connections {
		c := s.quic.ConnectionStats()
		if st.MinRTT == 0 || c.MinRTT > 0 && c.MinRTT < st.MinRTT {
			st.RTT, st.MinRTT, st.Jitter = c.SmoothedRTT, c.MinRTT, c.MeanDeviation
		}
		st.BytesSent += c.BytesSent
		st.BytesReceived += c.BytesReceived
		st.PacketsSent += c.PacketsSent
		st.PacketsLost += c.PacketsLost
		if s.active() {
			st.Connections++
		}
	}
}

// counters are what an endpoint has turned away since it was made.
type counters struct {
	// oldStreams belonged to a generation that is over, or to a life of the peer that is;
	// unparked ones to a newer, and had to make room for an even newer; strangers' to a peer
	// outside the generation.
	oldStreams, unparked, strangers atomic.Uint64
	// corrupt connections carried what cannot be decoded.
	corrupt atomic.Uint64
	// busyChunks requests came when ChunkStreams were being answered.
	busyChunks atomic.Uint64
}

// traffic counts the frames exchanged with one peer.
type traffic struct {
	framesSent, framesReceived, payloadSent, payloadReceived atomic.Uint64
	dropped, duplicates, resent, repeated                    atomic.Uint64
}

// sent counts a piece that was written.
func (t *traffic) sent(p piece) {
	if p.again {
		t.resent.Add(1)
		return
	}
	t.payloadSent.Add(uint64(len(p.payload())))
	if p.last() {
		t.framesSent.Add(1)
	}
}

// received counts a message that is complete.
func (t *traffic) received(payloadBytes int) {
	t.framesReceived.Add(1)
	t.payloadReceived.Add(uint64(payloadBytes))
}

// stopwatch measures for how long at least one of several activities was going on.
type stopwatch struct {
	mu      sync.Mutex // guards the rest
	running int
	since   time.Time
	until   time.Time // when it stopped last
	sum     time.Duration
}

func (s *stopwatch) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

// begin does what start says. Callers hold mu.
func (s *stopwatch) begin() {
	if s.running == 0 {
		s.since = time.Now()
	}
	s.running++
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// set starts or stops the only activity, unless it is as it should be.
func (s *stopwatch) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.running == 0:
		s.begin()
	case !on && s.running > 0:
		s.end()
	}
}

// end does what stop says. Callers hold mu.
func (s *stopwatch) end() {
	s.running--
	if s.running == 0 {
		s.until = time.Now()
		s.sum += s.until.Sub(s.since)
	}
}

// ran tells whether it was running after that time.
func (s *stopwatch) ran(after time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0 || s.until.After(after)
}

// runs tells whether one of the activities is going on.
func (s *stopwatch) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0
}

func (s *stopwatch) total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 {
		return s.sum + time.Since(s.since)
	}
	return s.sum
}
