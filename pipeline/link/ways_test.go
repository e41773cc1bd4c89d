package link

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// ways is a network of several transports, each of them a network.
type ways struct {
	mu       sync.Mutex // guards order
	order    []plan.Transport
	networks map[plan.Transport]Network
	begin    sync.Once
	accepted chan arrival
}

type arrival struct {
	conn transport.Conn
	peer plan.PeerID
	err  error
}

// labelled is a connection of a transport.
type labelled struct {
	transport.Conn
	over plan.Transport
}

func (l labelled) Transport() plan.Transport { return l.over }

func (w *ways) Self() plan.PeerID { return w.networks[plan.QUIC].Self() }

func (w *ways) Transports(plan.PeerID) []plan.Transport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.order)
}

// prefer has the network choose a transport first.
func (w *ways) prefer(over plan.Transport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order = append([]plan.Transport{over}, slices.DeleteFunc(w.order, func(o plan.Transport) bool { return o == over })...)
}

// Dial tries all transports where none is asked for, each half a second after the one before.
func (w *ways) Dial(ctx context.Context, peer plan.PeerID, over plan.Transport) (transport.Conn, error) {
	if over != "" {
		conn, err := w.networks[over].Dial(ctx, peer, "")
		if err != nil {
			return nil, err
		}
		return labelled{conn, over}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	order := w.Transports(peer)
	results := make(chan arrival, len(order))
	for i, over := range order {
		go func() {
			select {
			case <-time.After(time.Duration(i) * time.Second / 2):
			case <-ctx.Done():
				results <- arrival{err: ctx.Err()}
				return
			}
			conn, err := w.Dial(ctx, peer, over)
			results <- arrival{conn: conn, err: err}
		}()
	}
	var first transport.Conn
	var errs []error
	for range order {
		switch r := <-results; {
		case r.err != nil:
			errs = append(errs, r.err)
		case first != nil:
			r.conn.Close(codeReplaced, "another was faster")
		default:
			first = r.conn
			cancel()
		}
	}
	if first == nil {
		return nil, errors.Join(errs...)
	}
	return first, nil
}

func (w *ways) Accept(ctx context.Context) (transport.Conn, plan.PeerID, error) {
	w.begin.Do(func() {
		for over, n := range w.networks {
			go func() {
				for {
					conn, peer, err := n.Accept(ctx)
					if err == nil {
						conn = labelled{conn, over}
					}
					select {
					case w.accepted <- arrival{conn, peer, err}:
					case <-ctx.Done():
					}
					if err != nil {
						return
					}
				}
			}()
		}
	})
	select {
	case a := <-w.accepted:
		return a.conn, a.peer, a.err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// twoWays makes a cluster of two peers with a QUIC line and what stands for a TCP line between them, and both lines.
func twoWays(t testing.TB, overQUIC, overTCP LinkConditions, opt Options) (c *cluster, udp, tcp *Emulated) {
	t.Helper()
	lines := map[plan.Transport]*Emulated{}
	for over, conditions := range map[plan.Transport]LinkConditions{plan.QUIC: overQUIC, plan.TCP: overTCP} {
		em, err := NewEmulated(EmulatedOptions{Peers: 2, Seed: 1, Conditions: conditions})
		if err != nil {
			t.Fatal(err)
		}
		lines[over] = em
	}
	udp, tcp = lines[plan.QUIC], lines[plan.TCP]
	c = runOn(t, udp.networks, func(n *quicNetwork) Network {
		networks := map[plan.Transport]Network{plan.QUIC: n}
		for _, other := range tcp.networks {
			if other.Self() == n.Self() {
				networks[plan.TCP] = other
			}
		}
		return &ways{order: []plan.Transport{plan.QUIC, plan.TCP}, networks: networks, accepted: make(chan arrival)}
	}, opt)
	c.networks = append(c.networks[:2:2], tcp.networks...)
	return c, udp, tcp
}

// messagesOver returns over which transport peer i's messages to the other one go, on trial or not.
func (c *cluster) messagesOver(i int) plan.Transport {
	e := c.endpoints[i]
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peer(c.ids[1-i]).over
}

// over returns over which transport peer i's messages go to the other one, and why.
func over(s *Session) (plan.Transport, string) {
	st := s.Stats()[0]
	return st.Transport, st.Reason
}

// slow and fast are lines of which a run has one over each transport.
var (
	slow = LinkConditions{BytesPerS: 400_000, Delay: 20 * time.Millisecond}
	fast = LinkConditions{BytesPerS: 1_000_000, Delay: 20 * time.Millisecond}
)

// lossy is a line on which one connection of QUIC carries little.
var lossy = LinkConditions{BytesPerS: 1_000_000, Delay: 80 * time.Millisecond, LossPerMillion: 40_000}

// TestBetterTransportIsFound: a run begins on QUIC, finds that another transport carries more, and gets what that carries
// alone: soon where QUIC loses packets. The next session begins with it.
func TestBetterTransportIsFound(t *testing.T) {
	figuresOnly(t, "TestUnusedTransportIsClosed and TestPreferenceThatChangesIsFollowed")
	for name, quic := range map[string]LinkConditions{"slow": slow, "lossy": lossy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				alone, _ := goodput(t, fast, 1, 5*time.Second, 5*time.Second)
				c, _, _ := twoWays(t, quic, fast, Options{})
				defer c.close()
				sessions := c.sessions(1)
				ctx, cancel := context.WithCancel(t.Context())
				wait := stream(ctx, c, sessions)
				time.Sleep(2 * time.Second)
				if now, _ := over(sessions[0]); now != plan.QUIC {
					t.Errorf("begins over %v", now)
				}
				time.Sleep(8 * time.Second)
				if got := c.messagesOver(0); name == "lossy" && got != plan.TCP {
					t.Errorf("messages go over %v after 10 s", got)
				}
				time.Sleep(55 * time.Second)
				now, why := over(sessions[0])
				got := rate(sessions[1], 5*time.Second) / float64(fast.BytesPerS)
				t.Logf("%v: %s; %.1f%% of the line, alone %.1f%%", now, why, 100*got, 100*alone)
				if now != plan.TCP || why == "" || got < 0.9*alone {
					t.Errorf("after 65 s over %v (%q), %.1f%% of the line, alone %.1f%%", now, why, 100*got, 100*alone)
				}
				if back, _ := over(sessions[1]); back != plan.QUIC {
					t.Errorf("the other direction, in which nothing is sent, is over %v", back)
				}
				cancel()
				wait()
				next := c.sessions(2)
				mustSend(t, next[0], c.ids[1], activation(2, 0, 0), nil)
				mustReceive(t, next[1], c.ids[0], activation(2, 0, 0), nil)
				time.Sleep(3 * time.Second)
				if now, _ := over(next[0]); now != plan.TCP {
					t.Errorf("the next session begins over %v", now)
				}
			})
		})
	}
}

// TestPreferenceThatChangesIsFollowed, within 5 looks: the network has measured the transports while the session went on. The
// other direction follows, since the peer has connected over what carries more, and keeps what carries more of its own.
func TestPreferenceThatChangesIsFollowed(t *testing.T) {
	for name, back := range map[string]plan.Transport{"both lossy": plan.TCP, "one lossy": plan.QUIC} {
		t.Run(name, func(t *testing.T) {
			if back == plan.QUIC {
				figuresOnly(t, "those of the other lines")
			}
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, udp, tcp := twoWays(t, lossy, fast, Options{})
				defer c.close()
				if back == plan.QUIC {
					udp.SetConditions(c.ids[1], c.ids[0], fast)
					tcp.SetConditions(c.ids[1], c.ids[0], slow)
				}
				sessions := c.sessions(1)
				ctx, cancel := context.WithCancel(t.Context())
				there := stream(ctx, c, sessions)
				here := stream(ctx, &cluster{t: t, ids: []plan.PeerID{c.ids[1], c.ids[0]}}, []*Session{sessions[1], sessions[0]})
				time.Sleep(2 * time.Second)
				if got := c.messagesOver(0); got != plan.QUIC {
					t.Errorf("messages go over %v first", got)
				}
				c.endpoints[0].net.(*ways).prefer(plan.TCP)
				time.Sleep(5 * time.Second)
				if got := c.messagesOver(0); got != plan.TCP {
					t.Errorf("messages go over %v, 5 looks after the network prefers TCP", got)
				}
				time.Sleep(25 * time.Second)
				for i, want := range []plan.Transport{plan.TCP, back} {
					if now, why := over(sessions[i]); now != want {
						t.Errorf("peer %d sends over %v in the end: %s", i, now, why)
					}
				}
				cancel()
				there()
				here()
			})
		})
	}
}

// TestChunksGoOverWhatTheNetworkPrefers, also where a connection of another transport stands and no session is open. Where
// that cannot be dialed they come over the connection that stands.
func TestChunksGoOverWhatTheNetworkPrefers(t *testing.T) {
	for _, dead := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, _, tcp := twoWays(t, fast, fast, Options{})
			defer c.close()
			tcp.Cut(c.ids[0], c.ids[1], dead)
			c.endpoints[1].ServeChunks(library(1000))
			fetch := func() (over []plan.Transport) {
				err := c.endpoints[0].Fetch(t.Context(), c.ids[1], hashes(3), func(plan.Hash, []byte) error { return nil })
				if err != nil {
					t.Error(err)
				}
				conns, _ := c.endpoints[0].connections(c.ids[1])
				for _, conn := range conns {
					over = append(over, conn.Transport())
				}
				return over
			}
			if got := fetch(); !slices.Equal(got, []plan.Transport{plan.QUIC}) {
				t.Errorf("connected over %v first", got)
			}
			c.endpoints[0].net.(*ways).prefer(plan.TCP)
			want := []plan.Transport{plan.QUIC, plan.TCP}
			if dead {
				want = want[:1]
			}
			for range 2 {
				if got := fetch(); !slices.Equal(got, want) {
					t.Errorf("TCP is dead: %v; connected over %v, want %v", dead, got, want)
				}
			}
		})
	}
}

// TestTransportThatDiesIsReplaced: with messages under way both ways all arrive, once, after a stall that is shorter than
// that of a connection; when QUIC answers again, it is used again.
func TestTransportThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, udp, _ := twoWays(t, fast, fast, Options{})
		defer c.close()
		sessions := c.sessions(1)
		stall := time.Duration(0)
		exchange(t, c, sessions, lessOf(240), func() {
			time.Sleep(2 * time.Second)
			if now, _ := over(sessions[0]); now != plan.QUIC {
				t.Errorf("begins over %v", now)
			}
			udp.Cut(c.ids[0], c.ids[1], true)
			cut := time.Now()
			time.Sleep(time.Second / 2) // for what was on the way
			received := sessions[1].Stats()[0].PayloadReceived
			for sessions[1].Stats()[0].PayloadReceived == received {
				time.Sleep(10 * time.Millisecond)
			}
			stall = time.Since(cut)
		})
		most := sessions[0].endpoint.opt.ConnTimeout + time.Second
		t.Logf("a stall of %v", stall)
		if stall > most {
			t.Errorf("a stall of %v, want at most %v", stall, most)
		}
		if resent(sessions) == 0 {
			t.Error("nothing was under way")
		}
		for i, s := range sessions {
			if now, why := over(s); now != plan.TCP || why != "UDP gets no answer" {
				t.Errorf("peer %d sends over %v: %q", i, now, why)
			}
		}
		udp.Cut(c.ids[0], c.ids[1], false)
		time.Sleep(5 * time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		wait := stream(ctx, c, sessions)
		time.Sleep(30 * time.Second)
		if now, why := over(sessions[0]); now != plan.QUIC {
			t.Errorf("sends over %v after QUIC has answered again: %q", now, why)
		}
		cancel()
		wait()
	})
}

// TestTransportInUseIsLogged: not the one that the network prefers, while that has no connection.
func TestTransportInUseIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c, udp, _ := twoWays(t, fast, fast, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer c.close()
		udp.Cut(c.ids[0], c.ids[1], true)
		sessions := c.sessions(1)
		exchange(t, c, sessions, 1, func() {})
		for i, s := range sessions {
			if now, _ := over(s); now != plan.TCP {
				t.Errorf("peer %d sends over %v", i, now)
			}
		}
		synctest.Wait() // nobody writes to the log
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "data link") && !strings.Contains(line, "transport=TCP") {
				t.Error(line)
			}
		}
		if n := strings.Count(log.String(), "transport=TCP"); n != 2 {
			t.Errorf("said %d times, want twice:\n%s", n, log.String())
		}
	})
}

// TestDirectionsChooseForThemselves: each is sent over the transport that carries most of it.
func TestDirectionsChooseForThemselves(t *testing.T) {
	figuresOnly(t, "TestUnusedTransportIsClosed and TestPreferenceThatChangesIsFollowed")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, udp, tcp := twoWays(t, fast, fast, Options{})
		defer c.close()
		udp.SetConditions(c.ids[0], c.ids[1], slow)
		tcp.SetConditions(c.ids[1], c.ids[0], slow)
		sessions := c.sessions(1)
		ctx, cancel := context.WithCancel(t.Context())
		wait := stream(ctx, c, sessions)
		back := stream(ctx, &cluster{t: t, ids: []plan.PeerID{c.ids[1], c.ids[0]}}, []*Session{sessions[1], sessions[0]})
		time.Sleep(70 * time.Second)
		for i, want := range []plan.Transport{plan.TCP, plan.QUIC} {
			now, why := over(sessions[i])
			got := rate(sessions[1-i], 5*time.Second) / float64(fast.BytesPerS)
			if now != want || got < 0.8 {
				t.Errorf("peer %d sends over %v (%q), %.1f%% of the better line", i, now, why, 100*got)
			}
		}
		cancel()
		wait()
		back()
	})
}

// TestMoreConnectionsThanAreUsedAreClosed, of the transport in use, by the end that made them: silences leave some.
func TestMoreConnectionsThanAreUsedAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := twoWays(t, fast, fast, Options{})
		defer c.close()
		sessions := c.sessions(1)
		for range 5 {
			for i, e := range c.endpoints {
				_, err := e.dial(t.Context(), c.ids[1-i], plan.QUIC)
				for errors.Is(err, errDialing) { // by itself
					time.Sleep(time.Second)
					_, err = e.dial(t.Context(), c.ids[1-i], plan.QUIC)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep((idleLooks + 5) * time.Second)
		conns, _ := c.endpoints[0].connections(c.ids[1])
		if len(conns) == 0 || len(conns) > 2 {
			t.Errorf("%d connections are left", len(conns))
		}
		mustSend(t, sessions[0], c.ids[1], activation(1, 0, 0), nil)
		mustReceive(t, sessions[1], c.ids[0], activation(1, 0, 0), nil)
	})
}

// TestUnusedTransportIsClosed, when both directions have left it.
func TestUnusedTransportIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, udp, _ := twoWays(t, slow, fast, Options{})
		defer c.close()
		sessions := c.sessions(1)
		ctx, cancel := context.WithCancel(t.Context())
		wait := stream(ctx, c, sessions)
		time.Sleep(70 * time.Second)
		count := func(want plan.Transport) (n int) {
			conns, _ := c.endpoints[0].connections(c.ids[1])
			for _, conn := range conns {
				if conn.Transport() == want {
					n++
				}
			}
			return n
		}
		if now, _ := over(sessions[0]); now != plan.TCP || count(plan.TCP) == 0 {
			t.Errorf("sends over %v", now)
		}
		// The peer's acknowledgements are no messages: it keeps to QUIC, which it can choose for itself.
		if n := count(plan.QUIC) + count(plan.TCP); n > 4 {
			t.Errorf("%d connections", n)
		}
		udp.Cut(c.ids[0], c.ids[1], true)
		time.Sleep(10 * time.Second)
		if now, _ := over(sessions[1]); now != plan.TCP || count(plan.QUIC) != 0 {
			t.Errorf("the peer would send over %v; %d QUIC connections are open", now, count(plan.QUIC))
		}
		cancel()
		wait()
	})
}
