package gossip

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/link"
	"pnode/planner/plan"
)

const (
	// linkSampleBytes must have been sent since the last rate for the next one to mean
	// something: what fits into buffers is gone at once.
	linkSampleBytes = 256 << 10
	// queuedSampleBytes of them must have queued for their rate to stand for the link's.
	queuedSampleBytes = 64 << 10
	// maxRates bounds the links that a heartbeat reports: those with the most traffic.
	maxRates = 16
	// maxLinkReasonBytes bounds the reason for a link's transport.
	maxLinkReasonBytes = 160
)

// LinkRate holds what the messages to a neighbour showed of the link.
type LinkRate struct {
	Peer        plan.PeerID `json:"peer"`
	BytesPerS   int64       `json:"bytes_per_s,omitempty"`
	RTTNanos    int64       `json:"rtt_nanos"`
	JitterNanos int64       `json:"jitter_nanos"`
	// Transport is over what the messages go, "" where it is not known; Reason says why it is not QUIC.
	Transport plan.Transport `json:"transport,omitempty"`
	Reason    string         `json:"reason,omitempty"`
}

// LinkMeter turns the counters of a link session into rates. Its methods may be called
// concurrently; the zero value meters nothing.
type LinkMeter struct {
	mu    sync.Mutex // guards the rest
	stats func() []link.Stats
	base  map[plan.PeerID]link.Stats // at the last rate
	rates map[plan.PeerID]int64
}

// Follow meters a session until the returned function is called.
func (m *LinkMeter) Follow(stats func() []link.Stats) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats, m.base, m.rates = stats, map[plan.PeerID]link.Stats{}, map[plan.PeerID]int64{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stats = nil
	}
}

// Rates returns the rates of the links that carried payload, the busiest first.
func (m *LinkMeter) Rates() []LinkRate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		return nil
	}
	all := slices.DeleteFunc(m.stats(), func(s link.Stats) bool { return s.PayloadSent == 0 || s.RTT <= 0 })
	slices.SortStableFunc(all, func(a, b link.Stats) int { return cmp.Compare(b.PayloadSent, a.PayloadSent) })
	var links []LinkRate
	for _, s := range all[:min(len(all), maxRates)] {
		since := s
		since.PayloadSent -= m.base[s.Peer].PayloadSent
		since.FramesSent -= m.base[s.Peer].FramesSent
		since.Busy -= m.base[s.Peer].Busy
		since.QueuedBytes -= m.base[s.Peer].QueuedBytes
		since.QueuedTime -= m.base[s.Peer].QueuedTime
		if since.PayloadSent >= linkSampleBytes {
			m.base[s.Peer], m.rates[s.Peer] = s, perSecond(since)
		}
		links = append(links, LinkRate{
			Peer: s.Peer, BytesPerS: m.rates[s.Peer], RTTNanos: s.RTT.Nanoseconds(), JitterNanos: s.Jitter.Nanoseconds(),
			Transport: s.Transport, Reason: s.Reason,
		})
	}
	return links
}

// perSecond returns a link's rate, by the messages that queued. Without any it returns an upper
// bound: a message is under way for its transfer, a round trip and the wait of its
// acknowledgement, for less where others are concurrent. 0 is no bound.
func perSecond(s link.Stats) int64 {
	if s.QueuedBytes >= queuedSampleBytes && s.QueuedTime > 0 {
		return int64(float64(s.QueuedBytes) / s.QueuedTime.Seconds())
	}
	transfers := s.Busy - time.Duration(s.FramesSent)*(s.RTT+link.AckEvery)
	if transfers <= 0 {
		return 0
	}
	return int64(float64(s.PayloadSent) / transfers.Seconds())
}
