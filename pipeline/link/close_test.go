package link

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestCloseConnectsForWhatIsQueued: what was sent before there was a connection arrives,
// whichever end dials.
func TestCloseConnectsForWhatIsQueued(t *testing.T) {
	for _, from := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := emulated(t, 2, LinkConditions{BytesPerS: 12_500_000, Delay: 10 * time.Millisecond}, Options{})
			defer c.close()
			sessions := c.sessions(1)
			mustSend(t, sessions[from], c.ids[1-from], activation(1, 0, 0), payload(100_000, 1))
			if err := sessions[from].Close(); err != nil {
				t.Errorf("peer %d: %v", from, err)
			}
			mustReceive(t, sessions[1-from], c.ids[from], activation(1, 0, 0), payload(100_000, 1))
		})
	}
}

// TestCloseNamesWhatWasNotRead: who did not take in what, unless that is known already.
func TestCloseNamesWhatWasNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 3, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		em.Cut(c.ids[0], c.ids[1], true)
		sessions := c.sessions(1)
		for i := range 3 {
			mustSend(t, sessions[0], c.ids[1], activation(1, 0, i), payload(10, i))
		}
		mustSend(t, sessions[0], c.ids[2], activation(1, 0, 0), payload(10, 0))
		begin := time.Now()
		err := sessions[0].Close()
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("closing took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), string(c.ids[1])+" has not acknowledged 3 messages") || strings.Contains(err.Error(), string(c.ids[2])) {
			t.Errorf("closing: %v", err)
		}
		if again := sessions[0].Close(); again != err {
			t.Errorf("closing again: %v", again)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{PeerTimeout: 2 * time.Second})
		defer c.close()
		em.Cut(c.ids[0], c.ids[1], true)
		s := c.endpoints[0].Session(1, c.ids)
		mustSend(t, s, c.ids[1], activation(1, 0, 0), nil)
		<-s.Lost()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("closing after the peer was lost: %v", err)
		}
	})
}

// TestFlushWaitsForASlowLine, which Close would not.
func TestFlushWaitsForASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: 100_000, Delay: 10 * time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		begin := time.Now()
		mustSend(t, sessions[0], c.ids[1], activation(1, 1, 0), payload(500_000, 1))
		if err := sessions[0].Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("5 s of payload took %v", took)
		}
		mustReceive(t, sessions[1], c.ids[0], activation(1, 1, 0), payload(500_000, 1))
		if err := sessions[0].Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFlushGivesUp where a peer lives but does not read, and where it is lost.
func TestFlushGivesUp(t *testing.T) {
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, em := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{InboxFrames: 1, PeerTimeout: 5 * time.Second})
			defer c.close()
			sessions := c.sessions(1)
			everybody(t, c, sessions, 1, 10)
			em.Cut(c.ids[0], c.ids[1], cut)
			for i := range 3 {
				mustSend(t, sessions[0], c.ids[1], activation(1, 1, i), nil)
			}
			begin := time.Now()
			err := sessions[0].Flush(t.Context())
			if took := time.Since(begin); took > 6*time.Second {
				t.Errorf("it took %v", took)
			}
			if err == nil && !cut { // one that is cut off may be lost first
				t.Error("flushed what nobody reads")
			}
		})
	}
}
