package mux

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/transport"
)

// lineEnd is one end of a reliable line: what is written waits for its turn, takes its size over the rate, and then
// delay on the way. Write blocks while the queue is full, as a socket's does.
type lineEnd struct {
	net.Conn // nil; addresses and deadlines are not used
	out, in  *lineWay
}

// lineWay is one direction of a line.
type lineWay struct {
	rate   float64 // bytes a second
	delay  time.Duration
	queue  time.Duration // how long the newest byte may have to wait for its turn
	closed chan struct{}
	once   sync.Once
	came   chan struct{} // capacity 1

	mu   sync.Mutex // guards the rest
	free time.Time  // when the line has sent all that waits
	sent []segment
}

type segment struct {
	b   []byte
	due time.Time
}

func newLine(rate float64, delay, queue time.Duration) (a, b *lineEnd) {
	way := func() *lineWay {
		return &lineWay{rate: rate, delay: delay, queue: queue, closed: make(chan struct{}), came: make(chan struct{}, 1)}
	}
	there, back := way(), way()
	return &lineEnd{out: there, in: back}, &lineEnd{out: back, in: there}
}

func (w *lineWay) close() { w.once.Do(func() { close(w.closed) }) }

// sleep reports whether the line was open until then.
func (w *lineWay) sleep(until time.Time, woken chan struct{}) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-w.closed:
		return false
	}
	return true
}

func (e *lineEnd) Write(p []byte) (int, error) {
	w := e.out
	w.mu.Lock()
	free := w.free
	w.mu.Unlock()
	if !w.sleep(free.Add(-w.queue), nil) {
		return 0, net.ErrClosed
	}
	w.mu.Lock()
	if now := time.Now(); w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(time.Duration(float64(len(p)) / w.rate * 1e9))
	w.sent = append(w.sent, segment{append([]byte(nil), p...), w.free.Add(w.delay)})
	w.mu.Unlock()
	select {
	case w.came <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (e *lineEnd) Read(p []byte) (int, error) {
	w := e.in
	for {
		w.mu.Lock()
		due := time.Now().Add(time.Hour)
		if len(w.sent) > 0 {
			if due = w.sent[0].due; !due.After(time.Now()) {
				n := copy(p, w.sent[0].b)
				if w.sent[0].b = w.sent[0].b[n:]; len(w.sent[0].b) == 0 {
					w.sent = w.sent[1:]
				}
				w.mu.Unlock()
				return n, nil
			}
		}
		w.mu.Unlock()
		if !w.sleep(due, w.came) {
			return 0, io.EOF
		}
	}
}

func (e *lineEnd) Close() error {
	e.out.close()
	e.in.close()
	return nil
}

// onLine calls f in virtual time with the two ends of a connection over a line.
func onLine(t *testing.T, rate float64, delay, queue time.Duration, f func(t *testing.T, a, b *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := newLine(rate, delay, queue)
		a, b := New(near, Config{Dialer: true}), New(far, Config{})
		defer func() {
			a.Close(0, "")
			b.Close(0, "")
			<-a.Done()
			<-b.Done()
		}()
		f(t, a, b)
	})
}

// bulk writes to a stream of an urgency until the connection ends, and reads at the other end; count returns how many
// bytes have come.
func bulk(t *testing.T, a, b transport.Conn, urgency int8) (count func() int) {
	near, far := joined(t, a, b)
	near.SetUrgency(urgency)
	var mu sync.Mutex
	come := 0
	go func() {
		b := make([]byte, 256<<10)
		for {
			if _, err := near.Write(b); err != nil {
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := far.Read(b)
			mu.Lock()
			come += n
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return come
	}
}

// TestGoodput: one stream fills a line whose end-to-end delay is long, and windows grow for it.
func TestGoodput(t *testing.T) {
	for _, line := range []struct {
		name         string
		rate         float64
		delay, queue time.Duration
		settle       time.Duration
	}{
		{"100Mbit,40ms", 12.5e6, 20 * time.Millisecond, 20 * time.Millisecond, time.Second},
		{"100Mbit,40ms,deep queue", 12.5e6, 20 * time.Millisecond, time.Second, 2 * time.Second},
		{"1Gbit,100ms", 125e6, 50 * time.Millisecond, 20 * time.Millisecond, 2 * time.Second},
		{"10Mbit,300ms", 1.25e6, 150 * time.Millisecond, 50 * time.Millisecond, 3 * time.Second},
	} {
		t.Run(line.name, func(t *testing.T) {
			onLine(t, line.rate, line.delay, line.queue, func(t *testing.T, a, b *Conn) {
				count := bulk(t, a, b, 2)
				time.Sleep(line.settle)
				before := count()
				time.Sleep(2 * time.Second)
				part := float64(count()-before) / 2 / line.rate
				s := a.Stats()
				t.Logf("%.1f%% of the line, %+v, flight %d rate %.0f", 100*part, s, a.pings.flight, a.pings.rate)
				if part < 0.95 {
					t.Errorf("%.1f%% of the line arrive, want 95%%", 100*part)
				}
			})
		})
	}
}

// TestUrgentWaitsForTheLineOnly: a control message waits for what is on the way, which is bounded though the line would
// hold more, and never for what this end has yet to send.
func TestUrgentWaitsForTheLineOnly(t *testing.T) {
	for _, line := range []struct {
		name         string
		rate         float64
		delay, queue time.Duration
		most         time.Duration // beyond the delay
	}{
		{"shallow", 12.5e6, 20 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond},
		{"deep", 12.5e6, 20 * time.Millisecond, 10 * time.Second, 155 * time.Millisecond},
	} {
		t.Run(line.name, func(t *testing.T) {
			onLine(t, line.rate, line.delay, line.queue, func(t *testing.T, a, b *Conn) {
				near, far := joined(t, a, b) // later it would never have its turn
				near.SetUrgency(0)
				bulk(t, a, b, 6)
				bulk(t, a, b, 2)
				time.Sleep(time.Second)
				for range 20 {
					time.Sleep(37 * time.Millisecond)
					begin := time.Now()
					send(t, near, "now")
					receive(t, far, "now")
					if took := time.Since(begin) - line.delay; took > line.most {
						t.Errorf("a control message took %v beside bulk", took)
					}
				}
				s := a.Stats()
				if queue := s.LatestRTT - s.MinRTT; queue > line.most || queue < line.queue/2 && line.queue < time.Second {
					t.Errorf("round trips show a queue of %v", queue)
				}
				t.Logf("%+v", s)
			})
		})
	}
}
