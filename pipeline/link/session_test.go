package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

func TestThreePeersOverLoopback(t *testing.T) {
	before := runtime.NumGoroutine()
	c := run(t, loopbackNetworks(t, 3), Options{PeerTimeout: time.Minute}) // the machine may be busy
	everybody(t, c, c.sessions(1), 3, 100_000)
	everybody(t, c, c.sessions(2), 2, 10)
	c.close()
	deadline := time.Now().Add(time.Minute)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// In a bubble a test does not end while a goroutine is left.
func TestThreePeersEmulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shape := LinkConditions{BytesPerS: 12_500_000, Delay: 20 * time.Millisecond, Jitter: 3 * time.Millisecond, LossPerMillion: 1000}
		c, _ := emulated(t, 3, shape, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 2, 100_000)
		for _, st := range sessions[0].Stats() {
			least := 40 * time.Millisecond
			if st.Transport != plan.QUIC {
				least /= 2 // what waits for a lost packet answers late, and is thought to have waited at the other end
			}
			if st.MinRTT < least || st.MinRTT > 80*time.Millisecond {
				t.Errorf("RTT to %.8s is %v on a link of 40 ms", st.Peer, st.MinRTT)
			}
			if st.FramesSent != 10 || st.FramesReceived != 10 || st.PayloadSent != 1_000_000 || st.PayloadReceived != 1_000_000 {
				t.Errorf("counts are %+v", st)
			}
			if least := 80 * time.Millisecond; st.Busy < least { // 1 MB at 12.5 MB/s
				t.Errorf("busy for %v with what takes %v or more", st.Busy, least)
			}
		}
		for _, kind := range c.endpoints[0].Traffic() {
			want := uint64(0)
			switch kind.Kind {
			case wire.Activation.String(), wire.Gradient.String(), wire.ReducePart.String(), wire.GatherPart.String(), wire.TiedGrad.String():
				want = 400_000 // two messages to and from each of two peers
			}
			if kind.Sent != want || kind.Received != want {
				t.Errorf("traffic is %+v, want %d bytes each way", kind, want)
			}
		}
	})
}

func TestNewerGenerationIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		c.sessions(1)
		ahead := c.endpoints[0].Session(2, c.ids)
		mustSend(t, ahead, c.ids[1], activation(2, 5, 7), []byte("early"))
		time.Sleep(2 * time.Second)
		behind := c.endpoints[1].Session(2, c.ids)
		mustReceive(t, behind, c.ids[0], activation(2, 5, 7), []byte("early"))
		mustSend(t, behind, c.ids[0], activation(2, 5, 8), []byte("answer"))
		mustReceive(t, ahead, c.ids[1], activation(2, 5, 8), []byte("answer"))
	})
}

// TestAMessageMayBeEmpty: its tag alone says something, to who waits already and to who comes later.
func TestAMessageMayBeEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		s := c.sessions(1)
		for i, wait := range []time.Duration{0, time.Second} {
			mustSend(t, s[0], c.ids[1], activation(1, 5, i), nil)
			mustSend(t, s[0], c.ids[1], activation(1, 6, i), []byte("more"))
			time.Sleep(wait)
			mustReceive(t, s[1], c.ids[0], activation(1, 5, i), nil)
			mustReceive(t, s[1], c.ids[0], activation(1, 6, i), []byte("more"))
		}
	})
}

// TestUnopenedSessionIsWaitedFor: a peer that lives but opens its session late is not lost.
func TestUnopenedSessionIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		for i := range c.ids { // the peer that dials, and the one that waits
			g := plan.Generation(i + 1)
			s := c.endpoints[i].Session(g, c.ids)
			select {
			case id := <-s.Lost():
				t.Fatalf("%.8s is lost", id)
			case <-time.After(time.Minute):
			}
			late := c.endpoints[1-i].Session(g, c.ids)
			mustSend(t, late, c.ids[i], activation(g, 0, 0), []byte("late"))
			mustReceive(t, s, c.ids[1-i], activation(g, 0, 0), []byte("late"))
		}
	})
}

func TestParkedStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{ParkedStreams: 2})
		defer c.close()
		for g := plan.Generation(1); g <= 4; g++ { // one stream in each, and its end
			s := c.endpoints[0].Session(g, c.ids)
			mustSend(t, s, c.ids[1], activation(g, 0, 0), []byte{byte(g)})
			time.Sleep(100 * time.Millisecond)
		}
		if n := c.endpoints[1].counts.unparked.Load(); n < 4 {
			t.Errorf("%d streams made room, want 4 or more of the 8", n)
		}
		s := c.endpoints[1].Session(4, c.ids)
		mustReceive(t, s, c.ids[0], activation(4, 0, 0), []byte{4})
	})
}

func TestOlderGenerationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		c.endpoints[1].Session(5, c.ids)
		old := c.endpoints[0].Session(4, c.ids)
		mustSend(t, old, c.ids[1], activation(4, 0, 0), []byte("too late"))
		time.Sleep(time.Second)
		err := old.Send(t.Context(), c.ids[1], wire.Frame{Tag: activation(4, 0, 1)})
		if !errors.Is(err, ErrLeft) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("sending to a peer that is ahead: %v", err)
		}
		if c.endpoints[1].counts.oldStreams.Load() == 0 {
			t.Error("the refused stream is not counted")
		}
		fresh := c.endpoints[0].Session(5, c.ids)
		mustSend(t, fresh, c.ids[1], activation(5, 0, 0), []byte("now"))
	})
}

func TestSessionMustBeNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		e := c.endpoints[0]
		e.Session(3, c.ids)
		again := e.Session(3, c.ids)
		if err := again.Send(t.Context(), c.ids[1], wire.Frame{Tag: activation(3, 0, 0)}); !errors.Is(err, ErrGeneration) {
			t.Errorf("send: %v", err)
		}
		if _, err := again.Receive(t.Context(), c.ids[1], activation(3, 0, 0)); !errors.Is(err, ErrGeneration) {
			t.Errorf("receive: %v", err)
		}
	})
}

func TestMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{MaxTensorBytes: 100})
		defer c.close()
		s, ctx := c.sessions(1)[0], t.Context()
		for name, tt := range map[string]struct {
			to   plan.PeerID
			f    wire.Frame
			want error
		}{
			"kind":       {c.ids[1], wire.Frame{Tag: wire.Tag{Generation: 1}}, wire.ErrKind},
			"generation": {c.ids[1], wire.Frame{Tag: activation(2, 0, 0)}, ErrGeneration},
			"size":       {c.ids[1], wire.Frame{Tag: activation(1, 0, 0), Payload: make([]byte, 101)}, ErrTooLarge},
			"stranger":   {"nobody", wire.Frame{Tag: activation(1, 0, 0)}, ErrStranger},
		} {
			if err := s.Send(ctx, tt.to, tt.f); !errors.Is(err, tt.want) {
				t.Errorf("send, %s: %v", name, err)
			}
		}
		if _, err := s.Receive(ctx, "nobody", activation(1, 0, 0)); !errors.Is(err, ErrStranger) {
			t.Errorf("receive from a stranger: %v", err)
		}
		if _, err := s.Receive(ctx, c.ids[1], activation(2, 0, 0)); !errors.Is(err, ErrGeneration) {
			t.Errorf("receive of another generation: %v", err)
		}
	})
}

// TestCloseDeliversWhatIsQueued: the last message before Close arrives, and Close does not
// use up its time.
func TestCloseDeliversWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 3, LinkConditions{BytesPerS: 12_500_000, Delay: 10 * time.Millisecond}, Options{})
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		mustSend(t, sessions[0], c.ids[1], activation(1, 9, 9), payload(500_000, 1))
		begin := time.Now()
		sessions[0].Close()
		if took := time.Since(begin); took > 500*time.Millisecond {
			t.Errorf("closing took %v", took)
		}
		mustReceive(t, sessions[1], c.ids[0], activation(1, 9, 9), payload(500_000, 1))
		c.close()
	})
}

func TestCloseUnblocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{}, Options{QueueFrames: 1})
		defer c.close()
		em.Cut(c.ids[0], c.ids[1], true)
		s := c.endpoints[0].Session(1, c.ids)
		mustSend(t, s, c.ids[1], activation(1, 0, 0), nil)
		errs := make(chan error, 2)
		go func() { errs <- s.Send(context.Background(), c.ids[1], wire.Frame{Tag: activation(1, 0, 1)}) }()
		go func() {
			_, err := s.Receive(context.Background(), c.ids[1], activation(1, 0, 2))
			errs <- err
		}()
		synctest.Wait()
		s.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
		if err := s.Send(t.Context(), c.ids[0], wire.Frame{Tag: activation(1, 0, 3)}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("send to itself after Close: %v", err)
		}
	})
}

// TestNobodyWaitsForOneThatIsDropped: neither calls nor Close wait for a peer that is known to be gone.
func TestNobodyWaitsForOneThatIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told strings.Builder
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{Log: slog.New(slog.NewTextHandler(&told, nil))})
		defer c.close()
		s := c.endpoints[0].Session(1, c.ids)
		mustSend(t, s, c.ids[1], activation(1, 0, 0), payload(1000, 1))
		begin := time.Now()
		s.Drop(c.ids[1], ErrGaveUp)
		s.Drop("a stranger", ErrGone)
		if lost := <-s.Lost(); lost != c.ids[1] {
			t.Errorf("lost %s", lost)
		}
		if _, err := s.Receive(t.Context(), c.ids[1], activation(1, 0, 1)); !errors.Is(err, ErrLost) {
			t.Errorf("receive: %v", err)
		}
		s.Close()
		if took := time.Since(begin); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if got := told.String(); strings.Contains(got, "WARN") || !strings.Contains(got, ErrGaveUp.Error()) {
			t.Errorf("a member that is there, and has given the generation up, is told as %s", got)
		}
	})
}

// TestCloseIsBounded: a peer that does not read cannot hold Close up.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{CloseTimeout: 2 * time.Second})
		defer c.close()
		s := c.endpoints[0].Session(1, c.ids)
		mustSend(t, s, c.ids[1], activation(1, 0, 0), payload(20_000_000, 1)) // more than the parked stream's window
		time.Sleep(5 * time.Second)
		begin := time.Now()
		s.Close()
		s.Close()
		if took := time.Since(begin); took < time.Second || took > 2100*time.Millisecond {
			t.Errorf("closing took %v", took)
		}
	})
}
