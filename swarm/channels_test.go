package swarm

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
	"pnode/swarm/probe"
	"pnode/swarm/topics"
)

func quicAddr(s *Swarm) ma.Multiaddr {
	for _, a := range s.host.Addrs() {
		if _, err := a.ValueForProtocol(ma.P_QUIC_V1); err == nil {
			return a
		}
	}
	panic("no QUIC address")
}

// waitClosed waits until a swarm has none of some connections any more.
func waitClosed(t *testing.T, ctx context.Context, s *Swarm, conns []network.Conn) {
	t.Helper()
	gone := make(chan struct{}, 1)
	s.host.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) {
		select {
		case gone <- struct{}{}:
		default:
		}
	}})
	for slices.ContainsFunc(s.host.Network().Conns(), func(c network.Conn) bool { return slices.Contains(conns, c) }) {
		select {
		case <-gone:
		case <-ctx.Done():
			t.Fatalf("of %v there are still %v", conns, s.host.Network().Conns())
		}
	}
}

// exchangeData sends a megabyte from a to b over the data plane.
func exchangeData(t *testing.T, ctx context.Context, a, b *Swarm) {
	t.Helper()
	conn, err := a.Data().Dial(ctx, b.ID(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(0, "")
	st, err := conn.OpenStream(ctx)
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
	in, err := got.AcceptStream(ctx)
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
	if paths := c[0].Data().Transports(c[1].ID()); paths[0] != p.Transport {
		t.Errorf("transports %v after %s was found the better one", paths, p.Transport)
	}
	for range 3 { // a machine that is busy may have left TCP out at first
		if _, err = c[0].Probe(ctx, c[1].ID()); err != nil {
			break
		}
	}
	if !errors.Is(err, probe.ErrBusy) {
		t.Errorf("more probes within %s: %v", time.Second*3, err)
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
		err := s.Topics().Subscribe(topics.Events, func(_ plan.PeerID, b []byte) (any, error) {
			if string(b) == "bad" {
				return nil, errors.New("bad")
			}
			return string(b), nil
		}, func(from plan.PeerID, text any) { got <- message{s.ID(), from, text.(string)} })
		if err != nil {
			t.Fatal(err)
		}
	}
	waitTopic(t, ctx, c, topics.Events)
	if err := c[0].Topics().Publish(ctx, topics.Events, []byte("bad")); err == nil {
		t.Error("published what this node's own validator refuses")
	}
	seen := map[message]int{}
	for i, s := range c {
		if err := s.Topics().Publish(ctx, topics.Events, []byte{'a' + byte(i)}); err != nil {
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
	if err := c[0].Topics().Publish(ctx, "weather", nil); !errors.Is(err, topics.ErrUnknownTopic) {
		t.Errorf("unknown topic: %v", err)
	}
	if err := c[0].Topics().Publish(ctx, topics.Events, make([]byte, topics.MaxBytes+1)); !errors.Is(err, topics.ErrTooBig) {
		t.Errorf("too big: %v", err)
	}
	if err := c[0].Topics().Publish(ctx, topics.Profiles, make([]byte, topics.MaxBytes)); err != nil {
		t.Errorf("biggest: %v", err)
	}
}

// waitTopic waits until everyone knows that everyone else subscribes.
func waitTopic(t testing.TB, ctx context.Context, c []*Swarm, topic string) {
	t.Helper()
	for _, s := range c {
		if err := s.Topics().WaitFor(ctx, topic, len(c)-1); err != nil {
			t.Fatalf("%s: %v", s.ID(), err)
		}
	}
}
