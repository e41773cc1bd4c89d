package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// burst has a line carry messages one after the other, all of them there to be sent at since, and
// gives the time of the last acknowledgement. What comes within AckEvery is acknowledged together.
func burst(q *queueMeter, since time.Time, messages, bytes int, bytesPerS, trip time.Duration) (end time.Time) {
	var come int
	for i := range messages {
		due := since.Add(trip + time.Duration((i+1)*bytes)*time.Second/bytesPerS)
		for come > 0 && due.Sub(end) >= AckEvery { // what came before
			end = end.Add(AckEvery)
			q.acked(come*bytes, since, end, trip+AckEvery)
			come = 0
		}
		if due.Sub(end) < AckEvery {
			come++
			continue
		}
		end = due
		q.acked(bytes, since, end, trip+AckEvery)
	}
	if come > 0 {
		end = end.Add(AckEvery)
		q.acked(come*bytes, since, end, trip+AckEvery)
	}
	return end
}

// TestQueuedMessagesTellTheRate of a line, however long it is and often they queue; those that do
// not queue tell nothing.
func TestQueuedMessagesTellTheRate(t *testing.T) {
	const message = 32 << 10
	for _, trip := range []time.Duration{time.Millisecond, 120 * time.Millisecond, 600 * time.Millisecond} {
		for _, rate := range []time.Duration{300_000, 2_500_000, 12_500_000} {
			now := time.Unix(1000, 0)
			var q queueMeter
			for range 20 {
				now = burst(&q, now, 1, message, rate, trip).Add(time.Millisecond)
			}
			if bytes, took := q.total(); bytes != 0 || took != 0 {
				t.Errorf("%d B/s, %v: %d bytes that did not queue took %v", rate, trip, bytes, took)
			}
			for range 4 {
				now = burst(&q, now, 60, message, rate, trip).Add(time.Millisecond)
			}
			bytes, took := q.total()
			if got := float64(bytes) / took.Seconds(); bytes < 4*30*message || got < 0.95*float64(rate) || got > 1.05*float64(rate) {
				t.Errorf("%d B/s, %v: %d bytes in %v are %.0f B/s", rate, trip, bytes, took, got)
			}
		}
	}
}

// TestQueuedMessagesTellWhatALinkCarries: what connections get through an emulated link that slows
// down, which may be less than the line's rate, and little by little more.
func TestQueuedMessagesTellWhatALinkCarries(t *testing.T) {
	figuresOnly(t, "all tests that send messages")
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{BytesPerS: 12_500_000, Delay: 5 * time.Millisecond}, Options{})
		defer c.close()
		s, other := c.endpoints[0].Session(1, c.ids), c.endpoints[1].Session(1, c.ids)
		index := 0
		carry := func(messages int) (seen, was float64) {
			before, begin := s.Stats()[0], time.Now()
			from := index
			for range messages {
				mustSend(t, s, c.ids[1], activation(1, 0, index), payload(40_000, index))
				index++
			}
			for i := from; i < index; i++ {
				mustReceive(t, other, c.ids[0], activation(1, 0, i), payload(40_000, i))
			}
			took := time.Since(begin)
			time.Sleep(time.Second) // acknowledgements
			after := s.Stats()[0]
			bytes := float64(after.QueuedBytes - before.QueuedBytes)
			return bytes / (after.QueuedTime - before.QueuedTime).Seconds(), float64(messages*40_000) / took.Seconds()
		}
		carry(200)
		for _, shape := range []LinkConditions{{BytesPerS: 12_500_000, Delay: 5 * time.Millisecond}, {BytesPerS: 2_500_000, Delay: 60 * time.Millisecond}, {BytesPerS: 800_000, Delay: 5 * time.Millisecond}} {
			em.SetConditions(c.ids[0], c.ids[1], shape)
			em.SetConditions(c.ids[1], c.ids[0], shape)
			carry(100) // connections find their pace
			if seen, was := carry(200); seen < 0.9*was || seen > 1.1*was {
				t.Errorf("%+v carried %.0f B/s, those that queued %.0f", shape, was, seen)
			}
		}
	})
}
