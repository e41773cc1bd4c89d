package swarm

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	corehost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/probe"
	"pnode/swarm/streams"
	"pnode/swarm/topics"
)

// stranger is a libp2p host that speaks to members without a capability.
type stranger struct {
	corehost.Host
	quic *quicreuse.ConnManager
	id   admission.Identity
}

func newStranger(t *testing.T, sim *host.Simulated, more ...libp2p.Option) *stranger {
	t.Helper()
	x := &stranger{id: testIdentity(t)}
	var err error
	x.Host, err = libp2p.New(append(
		more, libp2p.Identity(x.id.Key()), libp2p.ListenAddrs(sim.Listen...), sim.QUIC,
		libp2p.Transport(libp2pquic.NewTransport), libp2p.DisableMetrics(), libp2p.DisableRelay(),
		libp2p.DisableIdentifyAddressDiscovery(), libp2p.WithFxOption(fx.Populate(&x.quic)),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func (x *stranger) connect(t *testing.T, ctx context.Context, to *Swarm) {
	t.Helper()
	if err := x.Connect(ctx, peer.AddrInfo{ID: to.host.ID(), Addrs: to.host.Addrs()}); err != nil {
		t.Fatal(err)
	}
}

// A stranger gets nothing: no stream, no gossip, no peers, no data, and is hung up on when
// the time for a greeting is over.
func TestVirtualStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		c := n.cluster(t, 2)
		a, ctx := c[0], testContext(t)
		heard := listeners(t, c)
		a.Handle("/pnode/test/1", func(context.Context, plan.PeerID, streams.Stream) { t.Error("a stranger's stream was handled") })
		x := newStranger(t, n.Host())
		topic, messages := x.subscribe(t, ctx, "pnode/2/"+string(testRun)+"/"+topics.Events)
		x.connect(t, ctx, a)
		connected := time.Now()
		if err := topic.Publish(ctx, []byte("let me in")); err != nil {
			t.Fatal(err)
		}
		if err := c[1].Topics().Publish(ctx, topics.Events, []byte("among us")); err != nil {
			t.Fatal(err)
		}
		x.tryAll(t, ctx, a)
		waitGone(t, ctx, x, a)
		if d := time.Since(connected); d < admission.TimeLimit-time.Second || d > admission.TimeLimit+time.Second {
			t.Errorf("hung up on after %s, want %s", d, admission.TimeLimit)
		}
		if got, err := waitMessage(messages, x.ID()); err == nil {
			t.Errorf("a stranger heard %q", got)
		}
		for i, s := range c {
			if got := heard[i].Load(); got != 1 {
				t.Errorf("%s heard %d messages, want the member's one", s.ID(), got)
			}
		}
		if _, _, err := a.Data().Accept(expired()); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stranger's data connection was accepted: %v", err)
		}
	})
}

// subscribe joins a topic with a pubsub of the stranger's own.
func (x *stranger) subscribe(t *testing.T, ctx context.Context, name string) (*pubsub.Topic, *pubsub.Subscription) {
	t.Helper()
	gossip, err := pubsub.NewGossipSub(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := gossip.Join(name)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := topic.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	return topic, sub
}

// tryAll wants a byte from each protocol that members speak.
func (x *stranger) tryAll(t *testing.T, ctx context.Context, to *Swarm) {
	t.Helper()
	protos := []string{"/pnode/test/1", "/pnode/peers/1", string(pubsub.GossipSubID_v12)}
	results := make(chan error)
	for _, p := range protos {
		go func() { results <- x.read(ctx, to, p) }()
	}
	for _, alpn := range []string{dataALPN, probe.ALPN} {
		go func() { results <- x.readLane(ctx, to, alpn) }()
	}
	for range len(protos) + 2 {
		if err := <-results; err == nil {
			t.Error("a stranger was answered")
		}
	}
}

// read opens a protocol's stream and waits for anything to come.
func (x *stranger) read(ctx context.Context, to *Swarm, proto string) error {
	st, err := x.NewStream(ctx, to.host.ID(), protocol.ID(proto))
	if err != nil {
		return err
	}
	defer st.Reset()
	if _, err := st.Write([]byte("please")); err != nil {
		return err
	}
	_, err = io.ReadFull(st, make([]byte, 1))
	return err
}

// readLane opens a QUIC connection of a member's ALPN and waits for it to be any use.
func (x *stranger) readLane(ctx context.Context, to *Swarm, alpn string) error {
	identity, err := libp2ptls.NewIdentity(x.id.Key())
	if err != nil {
		return err
	}
	conf, _ := identity.ConfigForPeer(to.host.ID())
	conf.NextProtos = []string{alpn}
	conn, err := x.quic.DialQUIC(ctx, quicAddr(to), conf, func(*quic.Conn, uint64) bool { return true })
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	st, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := st.Write(make([]byte, 8)); err != nil {
		return err
	}
	_, err = io.ReadFull(st, make([]byte, 1))
	return err
}

func waitGone(t *testing.T, ctx context.Context, x corehost.Host, s *Swarm) {
	t.Helper()
	gone := make(chan struct{}, 16)
	x.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) { gone <- struct{}{} }})
	for x.Network().Connectedness(s.host.ID()) != network.NotConnected {
		select {
		case <-gone:
		case <-ctx.Done():
			t.Fatal("a stranger is still connected")
		}
	}
}

// waitMessage looks for a queued message of another author than self.
func waitMessage(sub *pubsub.Subscription, self peer.ID) ([]byte, error) {
	for {
		m, err := sub.Next(expired())
		if err != nil {
			return nil, err
		}
		if m.GetFrom() != self {
			return m.GetData(), nil
		}
	}
}

// expired is a context that lets through only what is there already.
func expired() context.Context {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	cancel()
	return ctx
}
