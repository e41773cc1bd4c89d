package swarm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/peerstore"
	"pnode/swarm/streams"
	"pnode/swarm/topics"
)

// The virtual net: every node 20 ms from every other, on 20 Mbit/s.
const (
	virtualLatency = 10 * time.Millisecond
	virtualBits    = 20_000_000
)

// virtualNet hands out simulated sockets, all inside one synctest bubble.
type virtualNet struct {
	net   *simnet.Simnet
	nodes int
	// cut separates the first two nodes from the others.
	cut atomic.Bool
	// drops, if not nil, says by its first byte which datagram is lost.
	drops func(first byte) bool
}

// lossy is a socket that loses what drops says.
type lossy struct {
	net.PacketConn
	drops func(first byte) bool
}

func (l lossy) WriteTo(b []byte, to net.Addr) (int, error) {
	if l.drops(b[0]) {
		return len(b), nil
	}
	return l.PacketConn.WriteTo(b, to)
}

func newVirtualNet(t *testing.T) *virtualNet {
	n := &virtualNet{net: &simnet.Simnet{}}
	n.net.LatencyFunc = func(p *simnet.Packet) time.Duration {
		if n.cut.Load() && firstTwo(p.From) != firstTwo(p.To) {
			return 24 * time.Hour // never, as far as QUIC goes
		}
		return virtualLatency
	}
	n.net.Start()
	t.Cleanup(n.net.Close)
	return n
}

// firstTwo tells whether an address is of node 0 or 1.
func firstTwo(a net.Addr) bool {
	ip := a.(*net.UDPAddr).IP
	return ip.Equal(simnet.IntToPublicIPv4(0)) || ip.Equal(simnet.IntToPublicIPv4(1))
}

// host makes the stand-in for a node's sockets at an address of its own.
func (n *virtualNet) host() *host.Simulated {
	ip := simnet.IntToPublicIPv4(n.nodes)
	n.nodes++
	source := &sourceIP{}
	source.ip.Store(&ip)
	link := simnet.NodeBiDiLinkSettings{
		Downlink: simnet.LinkSettings{BitsPerSecond: virtualBits},
		Uplink:   simnet.LinkSettings{BitsPerSecond: virtualBits},
	}
	return &host.Simulated{
		Listen: []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/%s/udp/4001/quic-v1", ip))},
		QUIC: libp2p.QUICReuse(
			func(l fx.Lifecycle, reset quic.StatelessResetKey, token quic.TokenGeneratorKey, opts ...quicreuse.Option) (*quicreuse.ConnManager, error) {
				m, err := quicreuse.NewConnManager(reset, token, opts...)
				if err == nil {
					l.Append(fx.StopHook(m.Close))
				}
				return m, err
			},
			quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source, nil }),
			quicreuse.OverrideListenUDP(func(_ string, addr *net.UDPAddr) (net.PacketConn, error) {
				if n.drops != nil {
					return lossy{n.net.NewEndpoint(addr, link), n.drops}, nil
				}
				return n.net.NewEndpoint(addr, link), nil
			}),
		),
	}
}

// cluster is cluster on this net.
func (n *virtualNet) cluster(t *testing.T, nodes int) []*Swarm {
	t.Helper()
	return clusterOn(t, nodes, n.host)
}

// sourceIP answers every question for a route with the node's address.
type sourceIP struct{ ip atomic.Pointer[net.IP] }

func (s *sourceIP) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) {
	return *s.ip.Load(), nil
}

// Twenty nodes (ten with -short) join with one invite each through the member that came last, become a full
// mesh, gossip, measure a link, and lose the creator without losing each other.
func TestVirtualTime(t *testing.T) {
	nodes := 20
	if testing.Short() {
		nodes = 10
	}
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		o := testOwner(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		began := time.Now()
		cfg := testMember(t, o, testRun)
		cfg.simulated = n.host()
		all := []*Swarm{start(t, cfg)}
		for len(all) < nodes {
			v, err := o.Invite(admission.InviteOptions{Run: testRun, Uses: 1, Addrs: all[len(all)-1].Addrs()}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, enterVirtual(t, n, v))
		}
		for _, s := range all {
			waitMembers(t, ctx, s, nodes-1)
		}
		t.Logf("full mesh of %d after %s", nodes, time.Since(began))
		heard := listeners(t, all)
		gossipVirtual(t, ctx, all, heard)
		profile, err := all[3].Probe(ctx, all[7].ID())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", profile)
		if rtt := time.Duration(profile.RTTNanos); rtt < 2*virtualLatency || rtt > 3*virtualLatency {
			t.Errorf("round trip %s, want about %s", rtt, 2*virtualLatency)
		}
		if r := profile.BytesPerS; r < virtualBits/8/2 || r > virtualBits/8 {
			t.Errorf("%d bytes a second on a line of %d", r, virtualBits/8)
		}
		if err := all[0].Close(); err != nil {
			t.Fatal(err)
		}
		for _, s := range all[1:] {
			waitMembers(t, ctx, s, nodes-2)
		}
		gossipVirtual(t, ctx, all[1:], heard[1:])
		t.Logf("done after %s", time.Since(began))
	})
}

// enterVirtual lets one node in by an invite whose grant it knows.
func enterVirtual(t *testing.T, n *virtualNet, v admission.Invite) *Swarm {
	t.Helper()
	id := testIdentity(t)
	capability, err := v.Redeem(id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{
		Identity: id, Run: v.Grant.Run, OwnerKey: v.OwnerKey, Capability: capability,
		Bootstrap: v.Addrs, Logger: testLogger(t), simulated: n.host(),
	})
	if err := s.Connect(testContext(t), v.Addrs...); err != nil {
		t.Fatal(err)
	}
	return s
}

// listeners counts what each node hears.
func listeners(t *testing.T, all []*Swarm) []*atomic.Int64 {
	t.Helper()
	var counts []*atomic.Int64
	for _, s := range all {
		n := new(atomic.Int64)
		if err := s.Topics().Subscribe(topics.Events, nil, func(plan.PeerID, []byte) { n.Add(1) }); err != nil {
			t.Fatal(err)
		}
		counts = append(counts, n)
	}
	return counts
}

// gossipVirtual has every node publish once and wants each message everywhere, once.
func gossipVirtual(t *testing.T, ctx context.Context, all []*Swarm, heard []*atomic.Int64) {
	t.Helper()
	waitTopic(t, ctx, all, topics.Events)
	for _, n := range heard {
		n.Store(0)
	}
	for _, s := range all {
		if err := s.Topics().Publish(ctx, topics.Events, []byte("here")); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Second) // virtual
	for i := range all {
		if got := heard[i].Load(); got != int64(len(all)) {
			t.Errorf("node %d heard %d messages of %d", i, got, len(all))
		}
	}
}

// Machines that are off do not delay the first contact with a member that is there, and are
// told of when there is none.
func TestVirtualConnectPastTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		o := testOwner(t)
		ctx := testContext(t)
		dead := peerstore.FullAddrs(testIdentity(t).ID(), n.host().Listen) // nobody is there
		dead = append(dead, peerstore.FullAddrs(testIdentity(t).ID(), n.host().Listen)...)
		cfg := testMember(t, o, testRun)
		cfg.simulated = n.host()
		there := start(t, cfg)
		cfg = testMember(t, o, testRun)
		cfg.simulated = n.host()
		s := start(t, cfg)
		began := time.Now()
		if err := s.Connect(ctx, append(dead, there.Addrs()...)...); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("connected after %s", d)
		}
		if err := s.Connect(ctx, dead...); err == nil || admission.IsRefusal(err) {
			t.Errorf("connect to the dead: %v", err)
		}
	})
}

// A membership that ends is ended by the others, and cannot be used to come back.
func TestVirtualMembershipEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		o := testOwner(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		cfg := testMember(t, o, testRun)
		cfg.simulated = n.host()
		a := start(t, cfg)
		cfg = testMember(t, o, testRun)
		cfg.simulated = n.host()
		var err error
		if cfg.Capability, err = o.Capability(testRun, cfg.Identity, time.Minute, time.Now()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b := start(t, cfg)
		if err := b.Connect(ctx, a.Addrs()...); err != nil {
			t.Fatal(err)
		}
		conn, err := a.Data().Dial(ctx, b.ID(), "")
		if err != nil {
			t.Fatal(err)
		}
		waitMembers(t, ctx, a, 0)
		waitMembers(t, ctx, b, 0)
		if d := time.Since(began); d < time.Minute-time.Second || d > time.Minute+2*time.Second {
			t.Errorf("membership of a minute ended after %s", d)
		}
		select {
		case <-conn.Context().Done():
		case <-time.After(time.Second):
			t.Error("a connection for data outlives the membership")
		}
		if err := b.Connect(ctx, a.Addrs()...); !errors.Is(err, admission.ErrCapabilityExpired) {
			t.Errorf("connect after the end: %v", err)
		}
		if _, err := New(ctx, cfg); !errors.Is(err, admission.ErrCapabilityExpired) {
			t.Errorf("start after the end: %v", err)
		}
	})
}

// A partition separates the members; when it heals they find each other again by
// themselves.
func TestVirtualPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		all := n.cluster(t, 4)
		n.cut.Store(true) // nodes 0 and 1 from 2 and 3
		for _, s := range all {
			waitMembers(t, ctx, s, 1)
		}
		time.Sleep(2 * time.Minute) // virtual
		n.cut.Store(false)
		healed := time.Now()
		for _, s := range all {
			waitMembers(t, ctx, s, 3)
		}
		if d := time.Since(healed); d > 2*time.Minute {
			t.Errorf("together again only after %s", d)
		}
		gossipVirtual(t, ctx, all, listeners(t, all))
	})
}

// A stream to a peer that has just died can be closed, and a read on it ends, long before
// its connection is known to be dead: the peer's word on the protocol is not waited for.
func TestVirtualCloseOfAStreamToTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		all := n.cluster(t, 4)
		all[2].Handle("/test/1", func(ctx context.Context, _ plan.PeerID, _ streams.Stream) { <-ctx.Done() })
		before, err := all[0].Open(ctx, all[2].ID(), "/test/1") // its protocols are known from here on
		if err != nil {
			t.Fatal(err)
		}
		defer before.Close()
		n.cut.Store(true) // nodes 0 and 1 from 2 and 3
		st, err := all[0].Open(ctx, all[2].ID(), "/test/1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Write([]byte("anybody there?")); err != nil {
			t.Fatal(err)
		}
		began, ended := time.Now(), make(chan error)
		go func() {
			_, err := st.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait() // the read is under way
		st.Close()
		if err := <-ended; err == nil {
			t.Error("the dead answer")
		}
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("closing took %s", d)
		}
	})
}
