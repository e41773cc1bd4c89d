package link

import (
	"sync"
	"sync/atomic"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner"
)

// Stats is what is known of the link to one peer since the session began; what is
// measured of the connection holds since it was made.
type Stats struct {
	Peer planner.PeerID
	// RTT is smoothed, Jitter its mean deviation (RFC 9002, section 5.3).
	RTT, MinRTT, Jitter time.Duration
	// Of the connection, with retransmissions and packet headers.
	BytesSent, BytesReceived, PacketsSent, PacketsLost uint64
	// Of the session, without heartbeats.
	FramesSent, FramesReceived, PayloadSent, PayloadReceived uint64
	// Busy is how long at least one frame was being written.
	Busy time.Duration
	// Dropped frames had another generation; Duplicates had come before.
	Dropped, Duplicates uint64
}

// Goodput is the payload rate while there was something to write, in bytes per second; 0
// when unknown. Small payloads fit into buffers and say little.
func (s Stats) Goodput() int64 {
	if s.Busy <= 0 {
		return 0
	}
	return int64(float64(s.PayloadSent) / s.Busy.Seconds())
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
		}
		if conn := r.conn.Load(); conn != nil {
			c := conn.ConnectionStats()
			st.RTT, st.MinRTT, st.Jitter = c.SmoothedRTT, c.MinRTT, c.MeanDeviation
			st.BytesSent, st.BytesReceived = c.BytesSent, c.BytesReceived
			st.PacketsSent, st.PacketsLost = c.PacketsSent, c.PacketsLost
		}
		all = append(all, st)
	}
	return all
}

// Counts is what an endpoint has turned away since it was made.
type Counts struct {
	// OldStreams belonged to a generation that is over; Unparked to a newer one, and had
	// to make room for an even newer; Strangers to a peer outside the generation, or were
	// the second of their class.
	OldStreams, Unparked, Strangers uint64
	// Corrupt connections carried what cannot be decoded.
	Corrupt uint64
	// BusyChunks requests came when ChunkStreams were being answered.
	BusyChunks uint64
}

// Counts gives the present counts.
func (e *Endpoint) Counts() Counts {
	return Counts{
		OldStreams: e.counts.oldStreams.Load(), Unparked: e.counts.unparked.Load(), Strangers: e.counts.strangers.Load(),
		Corrupt: e.counts.corrupt.Load(), BusyChunks: e.counts.busyChunks.Load(),
	}
}

type counters struct {
	oldStreams, unparked, strangers, corrupt, busyChunks atomic.Uint64
}

// traffic counts the frames exchanged with one peer.
type traffic struct {
	framesSent, framesReceived, payloadSent, payloadReceived, dropped, duplicates atomic.Uint64
}

func (t *traffic) sent(k wire.Kind, payloadBytes int) {
	if k != wire.Heartbeat {
		t.framesSent.Add(1)
		t.payloadSent.Add(uint64(payloadBytes))
	}
}

func (t *traffic) received(k wire.Kind, payloadBytes int) {
	if k != wire.Heartbeat {
		t.framesReceived.Add(1)
		t.payloadReceived.Add(uint64(payloadBytes))
	}
}

// stopwatch measures for how long at least one of several activities was going on.
type stopwatch struct {
	mu      sync.Mutex // guards the rest
	running int
	since   time.Time
	sum     time.Duration
}

func (s *stopwatch) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == 0 {
		s.since = time.Now()
	}
	s.running++
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.running == 0 {
		s.sum += time.Since(s.since)
	}
}

func (s *stopwatch) total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 {
		return s.sum + time.Since(s.since)
	}
	return s.sum
}
