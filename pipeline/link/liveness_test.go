package link

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/link/silence"
	"pnode/swarm/transport"
)

// TestASilentPeerIsMissedSoon: one whose traffic was regular is lost after LeastTimeout, and a shorter silence costs nothing. Its
// habits are known in the next generation.
func TestASilentPeerIsMissedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{Delay: 5 * time.Millisecond}, Options{LeastTimeout: silence.LeastLink})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 1000)
		time.Sleep(20 * time.Second)
		em.Cut(c.ids[0], c.ids[1], true)
		time.Sleep(silence.LeastLink - time.Second)
		em.Cut(c.ids[0], c.ids[1], false)
		time.Sleep(3 * time.Second)
		select {
		case <-sessions[0].Lost():
			t.Error("lost after a shorter silence")
		default:
		}
		sessions = c.sessions(2)
		everybody(t, c, sessions, 1, 1000)
		if got := sessions[0].Silence(c.ids[1]); got > time.Second {
			t.Errorf("silent for %v in the middle of an exchange", got)
		}
		em.Kill(c.ids[1])
		took := lostWithin(t, sessions[0], c.ids[1], silence.LeastLink+time.Second)
		if took < silence.LeastLink-time.Second { // heartbeats had come until a second ago
			t.Errorf("lost after %v", took)
		}
		if !c.endpoints[0].Missing(c.ids[1]) || c.endpoints[0].Missing(c.ids[0]) {
			t.Error("who is missing is not told")
		}
	})
}

// TestAnEndedConnectionIsNoSignOfLife: one that ends between the moment in which it is listed and that in which it is looked at is no
// new one, which would excuse the peer's silence.
func TestAnEndedConnectionIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		everybody(t, c, c.sessions(1), 1, 10)
		s := newSession(c.endpoints[0], 2, c.ids, nil) // nobody else looks at its connections
		defer s.Close()
		r := s.remotes[c.ids[1]]
		listed, _ := c.endpoints[0].connections(c.ids[1])
		if len(listed) == 0 || !r.use(listed) || r.use(listed) {
			t.Fatal("a connection is not new once")
		}
		for _, conn := range listed {
			conn.Close(codeSilent, "silent")
		}
		if r.use(listed) || len(r.connections) > 0 {
			t.Error("an ended connection counts as a new one")
		}
	})
}

// TestOneConnectionThatIsRefusedIsNoLoss: after a line was cut, data comes through again before libp2p has connected. A peer that takes no
// connection is lost.
func TestOneConnectionThatIsRefusedIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{}, Options{})
		defer c.close()
		for i := range c.endpoints {
			c.spread(i, 1-i, 3)
		}
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		for c.connections(0, 1) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		for _, s := range sessions {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s := newSession(c.endpoints[0], 2, c.ids, nil) // nobody else looks at its connections
		defer s.Close()
		r := s.remotes[c.ids[1]]
		listed, _ := c.endpoints[0].connections(c.ids[1])
		if len(listed) < 2 || !r.use(listed) {
			t.Fatalf("%d connections", len(listed))
		}
		theirs, _ := c.endpoints[1].connections(c.ids[0])
		for i, conn := range theirs {
			conn.Close(transport.CodeNotMember, "not an admitted member")
			synctest.Wait()
			r.use(nil)
			if lost := len(s.Lost()) > 0; lost != (i == len(theirs)-1) {
				t.Errorf("%d of %d connections refused: lost %t", i+1, len(theirs), lost)
			}
		}
	})
}

// TestASilentPeerHoldsNobodyUp: a session that ends does not wait for a silent peer to read what is queued.
func TestASilentPeerHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{Delay: 5 * time.Millisecond}, Options{CloseTimeout: time.Minute})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 1000)
		em.Kill(c.ids[1])
		time.Sleep(3 * time.Second)
		mustSend(t, sessions[0], c.ids[1], activation(1, 1, 0), []byte("unread"))
		begin := time.Now()
		if err := sessions[0].Close(); err == nil {
			t.Error("all was read")
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("closing took %v", took)
		}
	})
}

// TestPeersThatComeLateAreLostLate: a peer that was silent for long twice is waited for longer; one outage changes nothing.
func TestPeersThatComeLateAreLostLate(t *testing.T) {
	opt := Options{LeastTimeout: silence.LeastLink}.withDefaults()
	for _, c := range []struct {
		name    string
		outages int
		want    time.Duration
	}{
		{"once", 1, silence.LeastLink},
		{"twice", 2, 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l liveness
			now := time.Unix(1000, 0)
			l.begin(time.Second, now)
			comes := func(after time.Duration) {
				for ; after > 0; after -= time.Second / looksPerBeat {
					now = now.Add(time.Second / looksPerBeat)
					l.look(now)
				}
				l.hear(now)
			}
			for range 20 {
				comes(time.Second)
			}
			for range c.outages {
				comes(4 * time.Second)
				comes(time.Second)
			}
			if got := l.patience(opt); got != c.want {
				t.Errorf("lost after %v, want %v", got, c.want)
			}
		})
	}
	var stranger liveness
	if got := stranger.patience(opt); got != opt.PeerTimeout {
		t.Errorf("of a stranger: %v", got)
	}
}

// TestWhoSleptMissesNobody: the time in which this process did not look is no silence of others.
func TestWhoSleptMissesNobody(t *testing.T) {
	var l liveness
	now := time.Unix(1000, 0)
	l.begin(time.Second, now)
	now = now.Add(time.Hour)
	if slept := l.look(now); slept != time.Hour-time.Second || l.silent(now) != time.Second {
		t.Errorf("slept for %v, the peer was silent for %v", slept, l.silent(now))
	}
}

// TestAConnectionEndsAnAbsence: a peer that was lost is not missing any more once it is connected.
func TestAConnectionEndsAnAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{}, Options{PeerTimeout: 5 * time.Second})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		em.Cut(c.ids[0], c.ids[1], true)
		lostWithin(t, sessions[0], c.ids[1], 8*time.Second)
		if !c.endpoints[0].Missing(c.ids[1]) {
			t.Error("it is not missing")
		}
		em.Cut(c.ids[0], c.ids[1], false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.endpoints[0].connect(ctx, c.ids[1]); err != nil || c.endpoints[0].Missing(c.ids[1]) {
			t.Errorf("connected with %v, and missing", err)
		}
	})
}
