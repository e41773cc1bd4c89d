package link

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// leftWithin blocks until receiving from a peer fails because it has left.
func leftWithin(t *testing.T, s *Session, from plan.PeerID, d time.Duration) {
	t.Helper()
	begin := time.Now()
	_, err := s.Receive(t.Context(), from, activation(s.generation, 999, 9))
	if !errors.Is(err, ErrLeft) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive from a peer that has left: %v", err)
	}
	if took := time.Since(begin); took > d {
		t.Errorf("that was told after %v, want at most %v", took, d)
	}
}

// TestReceiveFromALeaverFails as soon as the peer is through with what it sent, which is
// received.
func TestReceiveFromALeaverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: 1_250_000, Delay: 10 * time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		mustSend(t, sessions[1], c.ids[0], activation(1, 9, 9), payload(500_000, 1))
		go sessions[1].Close()
		leftWithin(t, sessions[0], c.ids[1], 700*time.Millisecond) // 400 of them on the line
		leftWithin(t, sessions[0], c.ids[1], 0)
		mustReceive(t, sessions[0], c.ids[1], activation(1, 9, 9), payload(500_000, 1))
	})
}

// TestReceiveFromOneThatGaveUpFails: what the peer could not get rid of will never come.
func TestReceiveFromOneThatGaveUpFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{InboxFrames: 1})
		defer c.close()
		sessions := c.sessions(1)
		for i := range 3 {
			mustSend(t, sessions[1], c.ids[0], activation(1, 0, i), nil)
		}
		time.Sleep(time.Second)
		go sessions[1].Close()
		leftWithin(t, sessions[0], c.ids[1], 1100*time.Millisecond) // Options.CloseTimeout
		mustReceive(t, sessions[0], c.ids[1], activation(1, 0, 0), nil)
	})
}

// TestLeavingIsToldAfterADrop: a peer that left while the link was down says so when it is
// asked again, with an open session of its own or without one.
func TestLeavingIsToldAfterADrop(t *testing.T) {
	for _, next := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, em := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
			defer c.close()
			sessions := c.sessions(1)
			everybody(t, c, sessions, 1, 10)
			em.Cut(c.ids[0], c.ids[1], true)
			sessions[1].Close()
			if next {
				c.endpoints[1].Session(2, c.ids)
			}
			time.Sleep(6 * time.Second)
			em.Cut(c.ids[0], c.ids[1], false)
			leftWithin(t, sessions[0], c.ids[1], 6*time.Second) // until the link is used again
		})
	}
}

// TestClosingSessionSaysThatItLeaves: a stream that comes as Close begins is no stranger's.
func TestClosingSessionSaysThatItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		s := c.endpoints[1].Session(1, c.ids)
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		stream := write(t, intruder(t, c, 0, 1), opened(c, wire.Activations, 1))
		_, err := stream.Read(make([]byte, 1))
		if code, ok := transport.CutBy(err); !ok || code != streamLeft {
			t.Errorf("the stream ended with %v", err)
		}
		s.mu.Lock()
		s.closed = false
		s.mu.Unlock()
	})
}

// TestDrainingSessionIsHeard: while a session waits long for its last messages to be read,
// nobody takes it for lost.
func TestDrainingSessionIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{InboxFrames: 1, CloseTimeout: time.Minute})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		for i := range 3 {
			mustSend(t, sessions[1], c.ids[0], activation(1, 5, i), nil)
		}
		go sessions[1].Close()
		select {
		case id := <-sessions[0].Lost():
			t.Errorf("%.8s is lost", id)
		case <-time.After(40 * time.Second):
		}
		for i := range 3 {
			mustReceive(t, sessions[0], c.ids[1], activation(1, 5, i), nil)
		}
		leftWithin(t, sessions[0], c.ids[1], time.Second)
	})
}

// TestParkedStreamTellsItsLife: a session that begins with what a peer sent before takes
// nothing from another life of that peer.
func TestParkedStreamTellsItsLife(t *testing.T) {
	message := func(i int, text string) []byte {
		return pieceOf(wire.Frame{Tag: activation(1, 0, i), Payload: []byte(text)}, 1)
	}
	synctest.Test(t, func(t *testing.T) { // one that begins later
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		conn := intruder(t, c, 0, 1)
		write(t, conn, append(opened(c, wire.Activations, 1), message(0, "parked")...))
		synctest.Wait()
		s := c.endpoints[1].Session(1, c.ids)
		mustReceive(t, s, c.ids[0], activation(1, 0, 0), []byte("parked"))
		write(t, conn, wire.AppendOpen(nil, wire.Open{Class: wire.Gradients, Generation: 1, From: c.endpoints[0].epoch + 1}))
		lostWithin(t, s, c.ids[0], time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // one that was parked before
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		conn := intruder(t, c, 0, 1)
		old := wire.AppendOpen(nil, wire.Open{Class: wire.Activations, Generation: 1, From: c.endpoints[0].epoch + 1})
		write(t, conn, append(old, message(1, "stale")...))
		synctest.Wait()
		write(t, conn, append(opened(c, wire.Activations, 1), message(0, "fresh")...))
		synctest.Wait()
		s := c.endpoints[1].Session(1, c.ids)
		mustReceive(t, s, c.ids[0], activation(1, 0, 0), []byte("fresh"))
		synctest.Wait()
		if st := s.Stats()[0]; st.FramesReceived != 1 {
			t.Errorf("%d messages came of one life", st.FramesReceived)
		}
		select {
		case <-s.Lost():
			t.Error("the peer is lost for its life before the session")
		default:
		}
	})
}
