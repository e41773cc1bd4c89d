package link

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// lines lists links to measure, and the least part of the rate that is to arrive.
// From one connection they settle within some time; those that they settle at are tested.
var lines = []struct {
	name        string
	shape       LinkConditions
	settle      time.Duration
	connections int
	during      time.Duration
	floor       float64
}{
	{"100Mbit,40ms", LinkConditions{BytesPerS: 12_500_000, Delay: 20 * time.Millisecond}, 10 * time.Second, 1, time.Second / 2, 0.93},
	{"100Mbit,40ms,0.5%", LinkConditions{BytesPerS: 12_500_000, Delay: 20 * time.Millisecond, LossPerMillion: 5000}, 25 * time.Second, 16, 4 * time.Second, 0.80},
	{"1Gbit,40ms", LinkConditions{BytesPerS: 125_000_000, Delay: 20 * time.Millisecond}, 2 * time.Second, 2, 100 * time.Millisecond, 0.85},
}

const goodputBytes = 1 << 18

// stream sends messages without end from the first peer to the second, and has them received, until ctx ends.
func stream(ctx context.Context, c *cluster, sessions []*Session) func() {
	return streamBetween(ctx, c, sessions, 0, 1)
}

// streamBetween does what stream does, from any peer to any other.
func streamBetween(ctx context.Context, c *cluster, sessions []*Session, from, to int) func() {
	message := payload(goodputBytes, 1)
	done := make(chan error, 2)
	run := func(f func(i int) error) {
		for i := 0; ; i++ {
			if err := f(i); err != nil {
				done <- err
				return
			}
		}
	}
	go run(func(i int) error {
		return sessions[from].Send(ctx, c.ids[to], wire.Frame{Tag: activation(1, plan.Step(i), 0), Payload: message})
	})
	go run(func(i int) error {
		_, err := sessions[to].Receive(ctx, c.ids[from], activation(1, plan.Step(i), 0))
		return err
	})
	return func() {
		for range 2 {
			if err := <-done; ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				c.t.Errorf("the stream ended: %v", err)
			}
		}
	}
}

// rate returns how many payload bytes a second come through during d.
func rate(s *Session, d time.Duration) float64 {
	before, begin := s.Stats()[0].PayloadReceived, time.Now()
	time.Sleep(d)
	return float64(s.Stats()[0].PayloadReceived-before) / time.Since(begin).Seconds()
}

// goodput is the part of a line's rate that arrives as payload during d, beginning with a
// number of connections that then has some time to settle, and the number at the end.
func goodput(t testing.TB, shape LinkConditions, begin int, settle, d time.Duration) (part float64, connections int) {
	c, _ := emulated(t, 2, shape, Options{})
	defer c.close()
	c.spread(0, 1, begin)
	sessions := c.sessions(1)
	sessions[0].Warm(warmBytes, c.ids[1])
	time.Sleep(2 * warmTime)
	ctx, cancel := context.WithCancel(t.Context())
	wait := stream(ctx, c, sessions)
	defer wait()
	defer cancel()
	time.Sleep(settle)
	return rate(sessions[1], d) / float64(shape.BytesPerS), sessions[0].Stats()[0].Connections
}

// BenchmarkGoodput measures in real time, this machine's speed included.
func BenchmarkGoodput(b *testing.B) {
	for _, line := range lines {
		b.Run(line.name, func(b *testing.B) {
			part, connections := goodput(b, line.shape, 1, line.settle, 10*time.Second)
			b.ReportMetric(100*part, "%line")
			b.ReportMetric(float64(connections), "connections")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestGoodput measures in virtual time, where no other load matters.
func TestGoodput(t *testing.T) {
	if testing.Short() {
		t.Skip("200 MB through QUIC")
	}
	for _, line := range lines {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				part, connections := goodput(t, line.shape, line.connections, line.during, line.during)
				t.Logf("%.1f%% of the line over %d connections", 100*part, connections)
				if part < line.floor {
					t.Errorf("%.1f%% of the line arrive over %d connections, want %.0f%%", 100*part, connections, 100*line.floor)
				}
			})
		})
	}
}

// TestAcksPassBulk: while both ends send all that the line takes, what they acknowledge comes through: no direction waits for the
// other one to pause.
func TestAcksPassBulk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shape := LinkConditions{BytesPerS: 1_250_000, Delay: 5 * time.Millisecond}
		c, _ := emulated(t, 2, shape, Options{QueueBytes: 8 * goodputBytes})
		defer c.close()
		c.spread(0, 1, 1)
		c.spread(1, 0, 1)
		sessions := c.sessions(1)
		ctx, cancel := context.WithCancel(t.Context())
		for _, wait := range []func(){streamBetween(ctx, c, sessions, 0, 1), streamBetween(ctx, c, sessions, 1, 0)} {
			defer wait()
		}
		defer cancel()
		time.Sleep(2 * time.Second)
		for i, s := range sessions {
			if part := rate(s, 4*time.Second) / float64(shape.BytesPerS); part < 0.8 {
				t.Errorf("%.1f%% of the line arrive at peer %d while it sends too", 100*part, i)
			}
		}
	})
}

// TestConnectionsClimb: a long line that loses packets carries little on one connection, and is
// full once the others have been tried.
func TestConnectionsClimb(t *testing.T) {
	if testing.Short() {
		t.Skip("50 MB through QUIC")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shape := LinkConditions{BytesPerS: 1_250_000, Delay: 60 * time.Millisecond, LossPerMillion: 5000}
		one, _ := goodput(t, shape, 1, 0, 3*time.Second)
		part, connections := goodput(t, shape, 1, 40*time.Second, 5*time.Second)
		t.Logf("%.1f%% of the line over one connection, %.1f%% over %d", 100*one, 100*part, connections)
		if part < 0.6 || one > part/2 || connections < 4 {
			t.Errorf("%.1f%% of the line arrive over one connection, %.1f%% over %d", 100*one, 100*part, connections)
		}
	})
}
