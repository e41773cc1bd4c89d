package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// edge is a pair of nodes behind a line, warmed from both ends if asked for.
func edge(t *testing.T, shape LinkConditions, warm bool) (*cluster, []*Session) {
	c, _ := emulated(t, 2, shape, Options{})
	sessions := c.sessions(1)
	if warm {
		sessions[0].Warm(warmBytes, c.ids[1])
		sessions[1].Warm(warmBytes, c.ids[0])
	}
	return c, sessions
}

// TestWarmConnectionIsFasterAtOnce: the first message on a line of 100 Mbit/s and 40 ms takes
// its time on the line and one way, not the round trips in which a window opens.
func TestWarmConnectionIsFasterAtOnce(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	shape := LinkConditions{BytesPerS: 12_500_000, Delay: 20 * time.Millisecond}
	alone := time.Duration(float64(size)/12_500_000*float64(time.Second)) + shape.Delay
	first := func(t *testing.T, warm bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, sessions := edge(t, shape, warm)
			defer c.close()
			time.Sleep(3 * time.Second)
			begin := time.Now()
			mustSend(t, sessions[0], c.ids[1], activation(1, 1, 0), payload(size, 1))
			mustReceive(t, sessions[1], c.ids[0], activation(1, 1, 0), payload(size, 1))
			took = time.Since(begin)
			if st := sessions[1].Stats()[0]; st.FramesReceived != 1 || st.PayloadReceived != size {
				t.Errorf("padding is counted: %+v", st)
			}
		})
		return took
	}
	cold, warm := first(t, false), first(t, true)
	t.Logf("cold %v, warm %v, ideal %v", cold, warm, alone)
	if warm > alone*5/4 || cold < warm*5/4 {
		t.Errorf("the first message took %v, %v once warm; %v is ideal", cold, warm, alone)
	}
}

// TestWarmEdgeAnswersABurst: at 10 Mbit/s and 300 ms a burst one way delays the
// acknowledgements of the answers by more than a packet takes, at which QUIC ends its slow
// start. An edge that was warmed answers nearly as fast as the line allows, though messages
// are sent at once.
func TestWarmEdgeAnswersABurst(t *testing.T) {
	t.Parallel()
	const messages, size, rate = 60, 1 << 15, 1_250_000
	shape := LinkConditions{BytesPerS: rate, Delay: 150 * time.Millisecond, QueueBytes: 1 << 20}
	answered := func(t *testing.T, warm bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, sessions := edge(t, shape, warm)
			defer c.close()
			mustSend(t, sessions[0], c.ids[1], activation(1, 0, 0), nil) // waits for the warm-up
			mustReceive(t, sessions[1], c.ids[0], activation(1, 0, 0), nil)
			begin := time.Now()
			for i := range messages {
				mustSend(t, sessions[0], c.ids[1], activation(1, 1, i), payload(size, i))
			}
			for i := range messages {
				mustReceive(t, sessions[1], c.ids[0], activation(1, 1, i), payload(size, i))
				mustSend(t, sessions[1], c.ids[0], activation(1, 2, i), payload(size, i))
			}
			for i := range messages {
				mustReceive(t, sessions[0], c.ids[1], activation(1, 2, i), payload(size, i))
			}
			took = time.Since(begin)
		})
		return took
	}
	line := time.Duration(float64(messages*size)/rate*float64(time.Second)) + 2*shape.Delay
	cold, warm := answered(t, false), answered(t, true)
	t.Logf("cold %v, warm %v, ideal %v", cold, warm, line)
	if warm > line*5/4 || cold < warm*3/2 {
		t.Errorf("all was answered after %v, %v once warm; %v is ideal", cold, warm, line)
	}
}

// TestWarmingIsBounded: a peer that never warms its direction, and one that is warm already,
// hold messages up no longer than a direction takes.
func TestWarmingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shape := LinkConditions{BytesPerS: 1_250_000, Delay: 20 * time.Millisecond}
		c, em := emulated(t, 2, shape, Options{})
		defer c.close()
		sessions := c.sessions(1)
		sessions[0].Warm(warmBytes, c.ids[1])
		begin := time.Now()
		mustSend(t, sessions[0], c.ids[1], activation(1, 0, 0), nil)
		if took := time.Since(begin); took > 3*warmTime {
			t.Errorf("the first message was held back for %v", took)
		}
		before := em.LinkCounts(c.ids[0], c.ids[1]).Bytes
		sessions = c.sessions(2)
		sessions[0].Warm(warmBytes, c.ids[1])
		begin = time.Now()
		mustSend(t, sessions[0], c.ids[1], activation(2, 0, 0), nil)
		mustReceive(t, sessions[1], c.ids[0], activation(2, 0, 0), nil)
		if took := time.Since(begin); took > 4*shape.Delay {
			t.Errorf("the first message of the next generation took %v", took)
		}
		if sent := em.LinkCounts(c.ids[0], c.ids[1]).Bytes - before; sent > 10_000 {
			t.Errorf("%d bytes were sent on a connection that is warm", sent)
		}
	})
}

// TestWarmingSendsNoMoreThanMessages: a window is opened for what steps send and no further, so that small messages
// wait for no padding.
func TestWarmingSendsNoMoreThanMessages(t *testing.T) {
	shape := LinkConditions{BytesPerS: 12_500_000, Delay: 10 * time.Millisecond}
	for _, test := range []struct {
		name        string
		bytes, most int
	}{
		{"within the first window", 20_000, 10_000},
		{"beyond it", 200_000, 400_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, em := emulated(t, 2, shape, Options{})
				defer c.close()
				sessions := c.sessions(1)
				begin := time.Now()
				sessions[0].Warm(test.bytes, c.ids[1])
				sessions[1].Warm(test.bytes, c.ids[0])
				mustSend(t, sessions[0], c.ids[1], activation(1, 0, 0), nil)
				mustReceive(t, sessions[1], c.ids[0], activation(1, 0, 0), nil)
				if took := time.Since(begin); took > warmTime/4 {
					t.Errorf("the first message came after %v", took)
				}
				if sent := em.LinkCounts(c.ids[0], c.ids[1]).Bytes; sent > uint64(test.most) {
					t.Errorf("%d bytes were sent to open a window for %d", sent, test.bytes)
				}
			})
		})
	}
}
