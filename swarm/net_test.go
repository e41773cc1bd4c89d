package swarm

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
)

func protocolID(s string) protocol.ID { return protocol.ID(s) }

func quicAddr(s *Swarm) ma.Multiaddr {
	for _, a := range s.host.Addrs() {
		if isQUIC(a) {
			return a
		}
	}
	panic("no QUIC address")
}

// waitOneConn waits until a has one connection to b's peer.
func waitOneConn(t *testing.T, ctx context.Context, a, b *Swarm) {
	t.Helper()
	gone := make(chan struct{}, 16)
	a.host.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) { gone <- struct{}{} }})
	for len(a.host.Network().ConnsToPeer(b.host.ID())) != 1 {
		select {
		case <-gone:
		case <-ctx.Done():
			t.Fatalf("%d connections", len(a.host.Network().ConnsToPeer(b.host.ID())))
		}
	}
}

// exchangeData sends a megabyte from a to b over the data plane.
func exchangeData(t *testing.T, ctx context.Context, a, b *Swarm) {
	t.Helper()
	conn, err := a.Data().Dial(ctx, b.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithError(0, "")
	st, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := st.Write(make([]byte, 1<<20))
		sent <- errors.Join(err, st.Close())
	}()
	got, from, err := b.Data().Accept(ctx)
	if err != nil || from != a.ID() {
		t.Fatalf("accept: from %s, %v", from, err)
	}
	in, err := got.AcceptUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, in); err != nil || n != 1<<20 {
		t.Fatalf("received %d bytes: %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestData(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	if c[0].Data().Self() != c[0].ID() {
		t.Error("Self is someone else")
	}
	exchangeData(t, ctx, c[0], c[1])
	exchangeData(t, ctx, c[1], c[0])
	// Another peer ID at that address is refused.
	lane := c[0].data.lane
	if _, err := lane.dialAddr(ctx, testIdentity(t).id, quicAddr(c[1])); err == nil || !strings.Contains(err.Error(), "peer id mismatch") {
		t.Errorf("dial of a wrong peer ID: %v", err)
	}
	if _, err := c[0].Data().Dial(ctx, testIdentity(t).Peer()); !errors.Is(err, ErrNotMember) {
		t.Errorf("dial of an unknown peer: %v", err)
	}
	accepted := make(chan error, 1)
	go func() {
		_, _, err := c[1].Data().Accept(context.Background())
		accepted <- err
	}()
	if err := c[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
}

// An address that does not answer delays a connection, and no more.
func TestDialManyAddresses(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	lane, p := c[0].data.lane, peerID(t, c[1].ID())
	dead := ma.StringCast("/ip4/127.0.0.1/udp/9/quic-v1")
	began := time.Now()
	conn, err := lane.first(ctx, p, []ma.Multiaddr{dead, quicAddr(c[0]), quicAddr(c[1])})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := remotePeer(conn); err != nil || got != p {
		t.Errorf("connected to %s: %v", got, err)
	}
	if d := time.Since(began); d < laneStagger {
		t.Errorf("connected after %s, before the second address was tried", d)
	}
	if _, err := lane.first(ctx, p, nil); !errors.Is(err, ErrNoUDP) {
		t.Errorf("no address: %v", err)
	}
}

func TestProbe(t *testing.T) {
	c := cluster(t, 2)
	ctx := testContext(t)
	p, err := c[0].Probe(ctx, c[1].ID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", p)
	if p.Peer != c[1].ID() || p.RTTNanos <= 0 || p.JitterNanos < 0 || p.BytesPerS < 1<<16 {
		t.Errorf("profile %+v", p)
	}
	if _, err := c[0].Probe(ctx, c[1].ID()); !errors.Is(err, ErrProbeBusy) {
		t.Errorf("second probe within %s: %v", probePause, err)
	}
}

func TestProbeAllow(t *testing.T) {
	a, b, c := testIdentity(t).id, testIdentity(t).id, testIdentity(t).id
	now := time.Now()
	r := &prober{room: make(chan struct{}, probesServed), last: map[peer.ID]time.Time{}}
	if !r.allow(a, now) || r.allow(a, now.Add(probePause-1)) || !r.allow(b, now) {
		t.Error("one probe of a peer in the pause, two peers at once")
	}
	if r.allow(c, now) {
		t.Error("a third at once")
	}
	<-r.room
	if !r.allow(c, now.Add(probePause)) || len(r.last) != 1 {
		t.Errorf("after one ended: %v", r.last)
	}
}

func TestGoodput(t *testing.T) {
	t0 := time.Now()
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		marks []mark
		want  uint64
	}{
		"nothing":     {nil, 1},
		"one":         {[]mark{{1 << 20, t0}}, 1},
		"two":         {[]mark{{1000, at(0)}, {2000, at(100)}}, 10_000},
		"slow start":  {[]mark{{10, at(0)}, {500, at(1000)}, {1000, at(1100)}}, 5000},
		"one instant": {[]mark{{10, at(0)}, {1010, at(0)}}, 1_000_000_000},
	} {
		if got := goodput(c.marks); got != c.want {
			t.Errorf("%s: %d bytes/s, want %d", name, got, c.want)
		}
	}
}

func TestGossip(t *testing.T) {
	c := cluster(t, 5)
	ctx := testContext(t)
	type message struct {
		at, from plan.PeerID
		text     string
	}
	got := make(chan message, 100)
	for _, s := range c {
		err := s.Subscribe(TopicEvents, func(_ plan.PeerID, b []byte) error {
			if string(b) == "bad" {
				return errors.New("bad")
			}
			return nil
		}, func(from plan.PeerID, b []byte) { got <- message{s.ID(), from, string(b)} })
		if err != nil {
			t.Fatal(err)
		}
	}
	waitTopic(t, ctx, c, TopicEvents)
	if err := c[0].Publish(ctx, TopicEvents, []byte("bad")); err == nil {
		t.Error("published what this node's own validator refuses")
	}
	seen := map[message]int{}
	for i, s := range c {
		if err := s.Publish(ctx, TopicEvents, []byte{'a' + byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for len(seen) < 25 {
		select {
		case m := <-got:
			if seen[m]++; seen[m] > 1 {
				t.Errorf("%v came twice", m)
			}
		case <-ctx.Done():
			t.Fatalf("%d of 25 messages", len(seen))
		}
	}
	for i, s := range c {
		for _, to := range c {
			if seen[message{to.ID(), s.ID(), string(rune('a' + i))}] != 1 {
				t.Errorf("%d's message did not reach %s", i, to.ID())
			}
		}
	}
	if err := c[0].Publish(ctx, "weather", nil); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
	if err := c[0].Publish(ctx, TopicEvents, make([]byte, MaxGossipBytes+1)); !errors.Is(err, ErrTooBig) {
		t.Errorf("too big: %v", err)
	}
	if err := c[0].Publish(ctx, TopicProfiles, make([]byte, MaxGossipBytes)); err != nil {
		t.Errorf("biggest: %v", err)
	}
}

// waitTopic waits until everyone knows that everyone else subscribes.
func waitTopic(t testing.TB, ctx context.Context, c []*Swarm, topic string) {
	t.Helper()
	for _, s := range c {
		h, err := s.gossip.topics[topic].EventHandler()
		if err != nil {
			t.Fatal(err)
		}
		for len(s.gossip.topics[topic].ListPeers()) < len(c)-1 {
			if _, err := h.NextPeerEvent(ctx); err != nil {
				t.Fatalf("%s knows %d subscribers: %v", s.ID(), len(s.gossip.topics[topic].ListPeers()), err)
			}
		}
		h.Cancel()
	}
}

func TestReplayWindow(t *testing.T) {
	var w window
	for _, c := range []struct {
		n    uint64
		want bool
	}{
		{1000, true},
		{1000, false},
		{1001, true},
		{999, true},
		{999, false},
		{1001, false},
		{1000 + 1 - replayWindow, false},
		{1001 - replayWindow + 1, true},
		{1 << 60, true},
		{1001, false},
		{1<<60 - 1, true},
		{1<<60 + replayWindow, true},
		{1 << 60, false},
		{1<<60 + 1, true},
		{1<<60 + 1, false},
	} {
		if got := w.take(c.n); got != c.want {
			t.Errorf("%d: fresh %v, want %v", c.n, got, c.want)
		}
	}
}
