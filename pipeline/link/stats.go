package link

import (
	"sync"
	"sync/atomic"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Stats describe the link to one peer since the session began.
type Stats struct {
	Peer plan.PeerID
	// Transport is over what messages go to the peer, "" before there is a connection. Reason says in a sentence why it
	// is not QUIC, as far as this is known.
	Transport plan.Transport
	Reason    string
	// RTT is smoothed, Jitter its mean deviation (RFC 9002, section 5.3).
	RTT, MinRTT, Jitter time.Duration
	// Each message counts once.
	FramesSent, FramesReceived, PayloadSent, PayloadReceived uint64
	// Busy is how long at least one message was under way, from Send until it was acknowledged.
	Busy time.Duration
	// QueuedBytes of payload stood behind others and came through in QueuedTime: at the rate at
	// which the link carries more than one message.
	QueuedBytes uint64
	QueuedTime  time.Duration
	// Dropped frames had another generation; Duplicates had come before.
	Dropped, Duplicates uint64
	// Connections are in use. Resent pieces were sent again because a connection broke, Repeated ones had
	// come when they came again.
	Connections      int
	Resent, Repeated uint64
}

// Stats returns one entry for each peer, in the order given to Endpoint.Session.
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
		r.mu.Lock()
		st.Transport, st.Reason = r.over, r.why
		for _, conn := range r.connections {
			if conn.active() {
				st.Connections++
			}
			if r.over != "" && conn.conn.Transport() != r.over {
				continue
			}
			c := conn.conn.Stats()
			if st.MinRTT == 0 || c.MinRTT > 0 && c.MinRTT < st.MinRTT {
				st.RTT, st.MinRTT, st.Jitter = c.SmoothedRTT, c.MinRTT, c.MeanDeviation
			}
		}
		r.mu.Unlock()
		if st.Reason == "" {
			st.Reason = s.endpoint.why(r.id, st.Transport)
		}
		all = append(all, st)
	}
	return all
}

// Explainer is implemented by a Network that knows why it does not use QUIC.
type Explainer interface {
	// Why returns why a peer is reached over a transport rather than a better one, as in "UDP gets no answer"; empty where
	// nothing is to be said.
	Why(peer plan.PeerID, over plan.Transport) string
}

func (e *Endpoint) why(id plan.PeerID, over plan.Transport) string {
	if explainer, ok := e.net.(Explainer); ok && over != plan.QUIC {
		return explainer.Why(id, over)
	}
	return ""
}

// counters count what an endpoint has turned away since it was made.
type counters struct {
	// oldStreams belonged to a generation that is over, or to a process of the peer that is; unparked ones
	// to a newer generation, and had to make room for an even newer; strangers' to a peer outside the
	// generation.
	oldStreams, unparked, strangers atomic.Uint64
	// corrupt connections carried what cannot be decoded.
	corrupt atomic.Uint64
	// busyChunks requests came when ChunkStreams were being answered.
	busyChunks atomic.Uint64
	// sent and received have the payload of all sessions by kind, those of index 0 that of chunks. Each message counts once.
	sent, received [wire.Kinds]atomic.Uint64
}

// Traffic is the payload of a kind, in bytes, since an endpoint was made: of messages, each of which counts once, or of chunks.
type Traffic struct {
	Kind           string
	Sent, Received uint64
}

// chunkKind names chunks, which belong to no session, among the kinds of messages.
const chunkKind = "chunk"

// Traffic returns the payload of each kind, chunks first.
func (e *Endpoint) Traffic() []Traffic {
	all := make([]Traffic, wire.Kinds)
	for k := range all {
		all[k] = Traffic{Kind: wire.Kind(k).String(), Sent: e.counts.sent[k].Load(), Received: e.counts.received[k].Load()}
	}
	all[0].Kind = chunkKind
	return all
}

// traffic counts the frames exchanged with one peer.
type traffic struct {
	framesSent, framesReceived, payloadSent, payloadReceived atomic.Uint64
	dropped, duplicates, resent, repeated                    atomic.Uint64
}

// stopwatch measures for how long at least one of several activities was going on.
type stopwatch struct {
	mu      sync.Mutex // guards the rest
	running int
	since   time.Time
	until   time.Time // when it stopped last
	sum     time.Duration
}

// add counts n activities more.
func (s *stopwatch) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(s.running + n)
}

// set starts or stops the only activity, unless it is as it should be.
func (s *stopwatch) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && s.running == 0 {
		s.change(1)
	} else if !on && s.running > 0 {
		s.change(s.running - 1)
	}
}

// change sets the number of activities. Callers hold mu.
func (s *stopwatch) change(running int) {
	if s.running == 0 {
		s.since = time.Now()
	}
	if s.running = running; s.running == 0 {
		s.until = time.Now()
		s.sum += s.until.Sub(s.since)
	}
}

// ran reports whether it was running after a time.
func (s *stopwatch) ran(after time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0 || s.until.After(after)
}

func (s *stopwatch) total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 {
		return s.sum + time.Since(s.since)
	}
	return s.sum
}

// queueMeter measures how fast messages come through that queue after others: what the line, the
// windows of its connections and other traffic on it leave them. A message on its own shows little
// of that, since most of its time is the round trip's.
//
// A piece that had not waited would have been acknowledged a round trip after it was there to be
// sent. Where that is before the acknowledgement ahead of it came, the piece was waiting all the
// time from there to its own, and that time was spent on it. The round trip only tells which pieces
// count: one that is assumed too long leaves some out.
type queueMeter struct {
	mu     sync.Mutex // guards the rest
	newest time.Time  // when something was acknowledged last
	bytes  uint64     // of payload that waited
	took   time.Duration
}

// acked takes in that bytes of payload, the first of which were there to be sent at since, were
// acknowledged at now. Without a queue that takes at most trip.
func (q *queueMeter) acked(bytes int, since, now time.Time, trip time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.newest.IsZero() && !since.Add(trip).After(q.newest) {
		q.bytes += uint64(bytes)
		q.took += now.Sub(q.newest)
	}
	q.newest = now
}

// total returns the sums so far.
func (q *queueMeter) total() (bytes uint64, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.took
}
