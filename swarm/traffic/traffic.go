package traffic

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/metrics"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Kinds of messages.
const (
	Log     = "log"     // the run's replicated log
	Gossip  = "gossip"  // heartbeats and profiles
	Commits = "commits" // decisions about steps, told to those that did not compute them
	Alive   = "alive"   // whether a connection still leads somewhere
	Other   = "other"
)

// kinds lists the kinds with what their protocols begin with; the last one is for all others.
var kinds = [...]struct {
	name     string
	prefixes []string
}{
	{Log, []string{"/pnode/raft/"}},
	{Gossip, []string{"/meshsub/"}},
	{Commits, []string{"/pnode/commit/", "/pnode/commits/", "/pnode/lastcommit/"}},
	{Alive, []string{"/pnode/alive/"}},
	{Other, nil},
}

// kindOf returns the place of a protocol in kinds.
func kindOf(p protocol.ID) int {
	for i, k := range kinds {
		for _, prefix := range k.prefixes {
			if strings.HasPrefix(string(p), prefix) {
				return i
			}
		}
	}
	return len(kinds) - 1
}

// Count says what messages of a kind came to, since the node began.
type Count struct {
	Kind string
	// SentBytes went out in SentWrites writes to streams: mostly one a message.
	SentBytes, SentWrites int64
	ReceivedBytes         int64
}

// counter counts one kind.
type counter struct{ sentBytes, sentWrites, receivedBytes atomic.Int64 }

// Meter counts by kind. The zero value has counted nothing. Its methods may be called concurrently.
type Meter struct {
	counters [len(kinds)]counter
}

var _ metrics.Reporter = (*Meter)(nil)

// Counts returns what there was of each kind, in a fixed order.
func (m *Meter) Counts() []Count {
	all := make([]Count, len(kinds))
	for i, k := range kinds {
		c := &m.counters[i]
		all[i] = Count{Kind: k.name, SentBytes: c.sentBytes.Load(), SentWrites: c.sentWrites.Load(), ReceivedBytes: c.receivedBytes.Load()}
	}
	return all
}

// LogSentMessageStream counts a write to a stream.
func (m *Meter) LogSentMessageStream(size int64, proto protocol.ID, _ peer.ID) {
	c := &m.counters[kindOf(proto)]
	c.sentBytes.Add(size)
	c.sentWrites.Add(1)
}

// LogRecvMessageStream counts a read from a stream.
func (m *Meter) LogRecvMessageStream(size int64, proto protocol.ID, _ peer.ID) {
	m.counters[kindOf(proto)].receivedBytes.Add(size)
}

// LogSentMessage is told of each write besides LogSentMessageStream.
func (*Meter) LogSentMessage(int64) {}

// LogRecvMessage is told of each read besides LogRecvMessageStream.
func (*Meter) LogRecvMessage(int64) {}

// Reset does nothing: counters only grow.
func (*Meter) Reset() {}

// TrimIdle does nothing: no peer has a counter of its own.
func (*Meter) TrimIdle(time.Time) {}

// GetBandwidthForPeer returns nothing: members are not told apart.
func (*Meter) GetBandwidthForPeer(peer.ID) metrics.Stats { return metrics.Stats{} }

// GetBandwidthByPeer returns nothing: members are not told apart.
func (*Meter) GetBandwidthByPeer() map[peer.ID]metrics.Stats { return nil }

// GetBandwidthForProtocol returns the totals of the protocol's kind.
func (m *Meter) GetBandwidthForProtocol(p protocol.ID) metrics.Stats {
	c := &m.counters[kindOf(p)]
	return metrics.Stats{TotalIn: c.receivedBytes.Load(), TotalOut: c.sentBytes.Load()}
}

// GetBandwidthByProtocol returns nothing: protocols are counted by kind (Counts).
func (*Meter) GetBandwidthByProtocol() map[protocol.ID]metrics.Stats { return nil }

// GetBandwidthTotals returns the totals of all kinds.
func (m *Meter) GetBandwidthTotals() (s metrics.Stats) {
	for _, c := range m.Counts() {
		s.TotalIn += c.ReceivedBytes
		s.TotalOut += c.SentBytes
	}
	return s
}
