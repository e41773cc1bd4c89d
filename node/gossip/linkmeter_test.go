package gossip

import (
	"testing"
	"time"

	"pnode/pipeline/link"
	"pnode/planner/plan"
)

// TestMeterForgetsWhatALinkCarried: the rate that heartbeats tell is that since the last one,
// of messages that queued where some did; too few bytes change nothing.
func TestMeterForgetsWhatALinkCarried(t *testing.T) {
	now := link.Stats{Peer: "neighbour", RTT: 120 * time.Millisecond}
	var m LinkMeter
	defer m.Follow(func() []link.Stats { return []link.Stats{now} })()
	for i, look := range []struct {
		payload, frames, queued uint64
		busy, took              time.Duration
		rate                    int64
	}{
		{payload: 1 << 20, frames: 32, queued: 1_000_000, busy: time.Second, took: 80 * time.Millisecond, rate: 12_500_000},
		{payload: 1 << 20, frames: 32, queued: 500_000, busy: 2 * time.Second, took: 500 * time.Millisecond, rate: 1_000_000},
		{payload: linkSampleBytes - 1, frames: 1, rate: 1_000_000},
		{payload: 1, frames: 1, queued: 800_000, busy: 2 * time.Second, took: 400 * time.Millisecond, rate: 2_000_000},
		{payload: 1_000_000, frames: 10, queued: queuedSampleBytes - 1, busy: 1500 * time.Millisecond, took: time.Microsecond, rate: 5_000_000}, // 200 ms more than 10 round trips
		{payload: 1_000_000, frames: 10, busy: time.Second, rate: 0},                                                                            // nothing tells
	} {
		now.PayloadSent += look.payload
		now.FramesSent += look.frames
		now.Busy += look.busy
		now.QueuedBytes += look.queued
		now.QueuedTime += look.took
		if links := m.Rates(); len(links) != 1 || links[0].Peer != "neighbour" || links[0].BytesPerS != look.rate {
			t.Errorf("look %d: %+v, not %d B/s", i, links, look.rate)
		}
	}
	now.Transport, now.Reason = plan.Relay, "UDP gets no answer"
	if links := m.Rates(); links[0].Transport != now.Transport || links[0].Reason != now.Reason {
		t.Errorf("%+v", links)
	}
}
