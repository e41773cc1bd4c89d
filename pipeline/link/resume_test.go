package link

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// exchange has every peer send n messages of every tensor kind to every other one, of sizes
// from nothing to some pieces, and receive what comes in order. It checks that each came
// once and that nobody was lost.
func exchange(t *testing.T, c *cluster, sessions []*Session, n int, disturb func()) {
	t.Helper()
	kinds := []wire.Kind{wire.Activation, wire.Gradient, wire.ReducePart}
	ctx := within(t, 10*time.Minute)
	var work errgroup.Group
	for me, s := range sessions {
		for other := range c.ids {
			if other == me {
				continue
			}
			for _, k := range kinds {
				work.Go(func() error { return sendAll(ctx, s, c.ids[other], k, n, me) })
				work.Go(func() error { return receiveAll(ctx, s, c.ids[other], k, n, other) })
			}
		}
	}
	disturb()
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, s := range sessions {
		for _, st := range s.Stats() {
			if want := uint64(n * len(kinds)); st.FramesReceived != want || st.Duplicates != 0 || st.Dropped != 0 {
				t.Errorf("peer %d received %d messages, want %d: %+v", i, st.FramesReceived, want, st)
			}
		}
		select {
		case id := <-s.Lost():
			t.Errorf("peer %d lost %.8s", i, id)
		default:
		}
	}
}

func numbered(k wire.Kind, g plan.Generation, i int) wire.Tag {
	return wire.Tag{Kind: k, Generation: g, Step: plan.Step(i)}
}

func numberedPayload(k wire.Kind, i, from int) []byte {
	return payload(i*7919%(3*wire.MaxPieceBytes), int(k), i, from)
}

func sendAll(ctx context.Context, s *Session, to plan.PeerID, k wire.Kind, n, me int) error {
	for i := range n {
		if err := s.Send(ctx, to, wire.Frame{Tag: numbered(k, s.generation, i), Payload: numberedPayload(k, i, me)}); err != nil {
			return err
		}
	}
	return nil
}

func receiveAll(ctx context.Context, s *Session, from plan.PeerID, k wire.Kind, n, other int) error {
	for i := range n {
		got, err := s.Receive(ctx, from, numbered(k, s.generation, i))
		if err != nil {
			return err
		}
		if string(got) != string(numberedPayload(k, i, other)) {
			return fmt.Errorf("message %d of %v from peer %d differs", i, k, other)
		}
	}
	return nil
}

// resent returns how many pieces all sessions have sent again.
func resent(sessions []*Session) (n uint64) {
	for _, s := range sessions {
		for _, st := range s.Stats() {
			n += st.Resent
		}
	}
	return n
}

// TestLinkDropIsSurvived: a link that is down for 10 s, with messages under way both ways,
// costs its time and nothing else.
func TestLinkDropIsSurvived(t *testing.T) {
	for name, shape := range map[string]LinkConditions{
		"clean":     {BytesPerS: 1_250_000, Delay: 20 * time.Millisecond},
		"loss":      {BytesPerS: 1_250_000, Delay: 20 * time.Millisecond, LossPerMillion: 5000},
		"reordered": {BytesPerS: 1_250_000, Delay: 20 * time.Millisecond, Jitter: 15 * time.Millisecond, Reorder: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, em := emulated(t, 2, slower(shape), Options{})
				defer c.close()
				sessions := c.sessions(1)
				begin := time.Now()
				exchange(t, c, sessions, lessOf(100), func() {
					time.Sleep(2 * time.Second)
					em.Cut(c.ids[0], c.ids[1], true)
					time.Sleep(10 * time.Second)
					em.Cut(c.ids[0], c.ids[1], false)
				})
				if resent(sessions) == 0 {
					t.Error("nothing was under way when the link went down")
				}
				t.Logf("%d messages of 3 kinds took %v", lessOf(100), time.Since(begin))
			})
		})
	}
}

// TestRepeatedDrops: short and long ones, some in one direction only.
func TestRepeatedDrops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shape := LinkConditions{BytesPerS: 1_250_000, Delay: 10 * time.Millisecond, LossPerMillion: 2000}
		c, em := emulated(t, 3, slower(shape), Options{})
		defer c.close()
		sessions := c.sessions(1)
		exchange(t, c, sessions, lessOf(100), func() {
			for i := range 6 {
				a, b := em.addr(c.ids[i%3]), em.addr(c.ids[(i+1)%3])
				em.cut(a, b, true)
				em.cut(b, a, i%2 == 0)
				time.Sleep(time.Duration(i+1) * 2 * time.Second)
				em.cut(a, b, false)
				em.cut(b, a, false)
				time.Sleep(3 * time.Second)
			}
		})
	})
}

// TestBothDialAtOnce: the connections that come of it carry each message once.
func TestBothDialAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, slower(LinkConditions{BytesPerS: 12_500_000, Delay: 10 * time.Millisecond}), Options{})
		defer c.close()
		sessions := c.sessions(1)
		exchange(t, c, sessions, lessOf(100), func() {
			for range 5 {
				time.Sleep(100 * time.Millisecond)
				var work errgroup.Group
				for i := range c.ids {
					e := c.endpoints[i]
					conns, _ := e.connections(c.ids[1-i])
					for _, conn := range conns {
						conn.Close(codeSilent, "a test")
					}
					work.Go(func() error {
						_, err := e.dial(t.Context(), c.ids[1-i], "")
						if errors.Is(err, errDialing) { // the session was quicker
							return nil
						}
						return err
					})
				}
				if err := work.Wait(); err != nil {
					t.Error(err)
				}
			}
		})
		if resent(sessions) == 0 {
			t.Error("no connection broke with anything under way")
		}
	})
}

// TestDropOverLoopback closes real connections under a running exchange.
func TestDropOverLoopback(t *testing.T) {
	c := loopback(t, 2, Options{PeerTimeout: time.Minute})
	sessions := c.sessions(1)
	exchange(t, c, sessions, 100, func() {
		for round := range 8 { // of some 14 MB
			for sessions[0].Stats()[0].PayloadReceived < uint64(round+1)<<20 {
				time.Sleep(time.Millisecond)
			}
			conns, _ := c.endpoints[round%2].connections(c.ids[1-round%2])
			for _, conn := range conns {
				conn.Close(codeSilent, "a test")
			}
		}
	})
}

// TestDropIsLostAfterPeerTimeout: messages under way to a peer that stays away fail.
func TestDropIsLostAfterPeerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, em := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		em.Cut(c.ids[0], c.ids[1], true)
		if took := lostWithin(t, sessions[0], c.ids[1], 17*time.Second); took < 14*time.Second {
			t.Errorf("lost after %v already", took)
		}
	})
}

// deadHost is a network whose hosts tell of processes that have ended.
type deadHost struct {
	*quicNetwork
	dead *atomic.Value // of plan.PeerID
}

func (d deadHost) Refuses(_ context.Context, id plan.PeerID) bool { return d.dead.Load() == id }

// mortal runs two peers, and returns what kills the process of the second one, whose host refuses for it from then on.
func mortal(t *testing.T) (c *cluster, kill func()) {
	t.Helper()
	em, err := NewEmulated(EmulatedOptions{Peers: 2, Seed: 1, Conditions: LinkConditions{Delay: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	var dead atomic.Value // of plan.PeerID
	c = runOn(t, em.networks, func(n *quicNetwork) Network { return deadHost{n, &dead} }, Options{})
	return c, func() {
		dead.Store(c.ids[1])
		em.Kill(c.ids[1])
	}
}

// TestKilledProcessIsLostSoon: a host that refuses for its dead process is believed long
// before the time of a silent network is over.
func TestKilledProcessIsLostSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kill := mortal(t)
		defer c.close()
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		synctest.Wait()
		kill()
		lostWithin(t, sessions[0], c.ids[1], 7*time.Second)
	})
}

// TestRestartedPeerIsLostAtOnce: whatever a peer does first in its new life tells of it.
func TestRestartedPeerIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{Delay: time.Millisecond}, Options{})
		defer c.close()
		s := c.endpoints[1].Session(1, c.ids)
		everybody(t, c, []*Session{c.endpoints[0].Session(1, c.ids), s}, 1, 10)
		conn := intruder(t, c, 0, 1)
		write(t, conn, wire.AppendOpen(nil, wire.Open{Class: wire.Chunks, From: c.endpoints[0].epoch + 1}))
		lostWithin(t, s, c.ids[0], time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // and so does its refusal of what is not for it
		em, err := NewEmulated(EmulatedOptions{Peers: 2, Seed: 1, Conditions: LinkConditions{Delay: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		stays, ends := run(t, em.networks[:1], Options{}), run(t, em.networks[1:], Options{})
		ids := em.Peers()
		s := stays.endpoints[0].Session(1, ids)
		peer := ends.endpoints[0].Session(1, ids)
		mustSend(t, peer, ids[0], activation(1, 0, 0), nil)
		mustReceive(t, s, ids[1], activation(1, 0, 0), nil)
		em.Cut(ids[0], ids[1], true)
		ends.stop()
		ends.work.Wait()
		time.Sleep(6 * time.Second)
		starts := run(t, em.networks[1:], Options{})
		em.Cut(ids[0], ids[1], false)
		lostWithin(t, s, ids[1], 5*time.Second)
		synctest.Wait() // Lost comes first, then calls fail
		if err := s.Send(t.Context(), ids[1], wire.Frame{Tag: activation(1, 9, 0)}); !errors.Is(err, errRestarted) {
			t.Errorf("send: %v", err)
		}
		stays.close()
		starts.close()
	})
}

// TestStreamsThatWereReplacedEnd: each connection that breaks has the others send pieces of
// before, on a stream more; those that they were on must end, or a peer soon takes no more.
func TestStreamsThatWereReplacedEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shape := LinkConditions{BytesPerS: 2_500_000, Delay: 20 * time.Millisecond, LossPerMillion: 5000}
		c, _ := emulated(t, 2, slower(shape), Options{})
		defer c.close()
		for i := range c.endpoints {
			c.spread(i, 1-i, 4)
		}
		sessions := c.sessions(1)
		exchange(t, c, sessions, lessOf(150), func() {
			time.Sleep(time.Second) // for more than one connection
			for range 30 {
				conns, _ := c.endpoints[0].connections(c.ids[1])
				if len(conns) > 1 {
					conns[len(conns)-1].Close(codeSilent, "a test") // the oldest stays
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
		if resent(sessions) == 0 {
			t.Error("no connection broke with anything under way")
		}
		time.Sleep(time.Second) // for the last acknowledgements
		// Heartbeats, warming, and one stream for each of the classes.
		if most, bound := streamsOf(sessions[0].remotes[c.ids[1]]), 2+len(wire.SessionClasses); most > bound {
			t.Errorf("%d streams are left on one connection, at most %d are needed", most, bound)
		}
	})
}

// streamsOf returns how many streams the connection with most of them sends on.
func streamsOf(r *remote) (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.connections {
		s.mu.Lock()
		most = max(most, len(s.streams))
		s.mu.Unlock()
	}
	return most
}

// TestAnEndedPeerHoldsNothingUp: once it is known that a peer's process has ended, neither a fetch from it nor the end of a
// generation waits for a connection to go silent.
func TestAnEndedPeerHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, kill := mortal(t)
		defer c.close()
		c.endpoints[1].ServeChunks(library(wire.MaxChunkBytes))
		sessions := c.sessions(1)
		everybody(t, c, sessions, 1, 10)
		synctest.Wait()
		kill()
		begin := time.Now()
		time.AfterFunc(10*time.Millisecond, func() { c.endpoints[0].PeerEnded(c.ids[1]) })
		mustSend(t, sessions[0], c.ids[1], activation(1, 11, 0), payload(1000, 1)) // which nobody reads
		if err := sessions[0].Close(); err != nil {
			t.Error(err)
		}
		for range 2 { // under way over the connection, and after it
			err := c.endpoints[0].Fetch(t.Context(), c.ids[1], hashes(1), func(plan.Hash, []byte) error { return nil })
			if err == nil {
				t.Error("fetched from a dead peer")
			}
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("a peer that is known to be gone was waited for for %v", took)
		}
	})
}
