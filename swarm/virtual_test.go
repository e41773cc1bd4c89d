package swarm

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/peerstore"
	"pnode/swarm/streams"
	"pnode/swarm/topics"
	"pnode/swarm/virtual"
)

// virtualLine lies between any two nodes in virtual time: 20 ms there and back, 20 Mbit/s.
var virtualLine = virtual.Line{Latency: 10 * time.Millisecond, BitsPerS: 20_000_000}

// virtualNet is a network inside one synctest bubble.
type virtualNet struct {
	*virtual.Net
	// cut separates the first two nodes from the others.
	cut atomic.Bool
	// drops, if not nil, says by its first byte which datagram is lost.
	drops func(first byte) bool
	// bytes counts those of all datagrams.
	bytes atomic.Int64
	// host makes one more node's network.
	host func() *Simulated
}

func newVirtualNet(t *testing.T) *virtualNet {
	n := &virtualNet{Net: virtual.New(virtualLine)}
	n.host = n.Host
	n.Loses = func(from, to netip.Addr, datagram []byte) bool {
		n.bytes.Add(int64(len(datagram)))
		return n.cut.Load() && firstTwo(from) != firstTwo(to) || n.drops != nil && n.drops(datagram[0])
	}
	t.Cleanup(n.Close)
	return n
}

// firstTwo tells whether an address is of node 0 or 1.
func firstTwo(a netip.Addr) bool { return a == virtual.Addr(0) || a == virtual.Addr(1) }

// cluster is cluster on this net.
func (n *virtualNet) cluster(t *testing.T, nodes int) []*Swarm {
	t.Helper()
	return clusterOn(t, nodes, n.host)
}

// Twenty nodes (ten with -short) join with one invite each through the member that came last, become a full
// mesh, gossip, measure a link, and lose the creator without losing each other.
func TestVirtualTime(t *testing.T) {
	nodes := 20
	if testing.Short() {
		nodes = 10
	}
	synctest.Test(t, func(t *testing.T) { meet(t, newVirtualNet(t), nodes) })
}

// Twenty nodes do the same without packets, as on sockets.
func TestVirtualTimeWithoutPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		n.host = n.Direct
		meet(t, n, 20)
	})
}

// meet has nodes come one by one, do what members do, and the first one leave.
func meet(t *testing.T, n *virtualNet, nodes int) {
	t.Helper()
	o := testOwner(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	began := time.Now()
	cfg := testMember(t, o, testRun)
	cfg.Simulated = n.host()
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
	if rtt := time.Duration(profile.RTTNanos); rtt < 2*virtualLine.Latency || rtt > 3*virtualLine.Latency {
		t.Errorf("round trip %s, want about %s", rtt, 2*virtualLine.Latency)
	}
	if r := profile.BytesPerS; r < int64(virtualLine.BitsPerS)/8/2 || r > int64(virtualLine.BitsPerS)/8*105/100 { // what waits in a socket is ahead of the line
		t.Errorf("%d bytes a second on a line of %d", r, virtualLine.BitsPerS/8)
	}
	if copies := copiesOfGossip(t, ctx, n, all); copies > 6.5 {
		t.Errorf("each message comes %.1f times to each member", copies)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	for _, s := range all[1:] {
		waitMembers(t, ctx, s, nodes-2)
	}
	gossipVirtual(t, ctx, all[1:], heard[1:])
	t.Logf("done after %s", time.Since(began))
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
		Bootstrap: v.Addrs, Logger: testLogger(t), Simulated: n.host(),
	})
	if err := s.Connect(testContext(t), v.Addrs...); err != nil {
		t.Fatal(err)
	}
	return s
}

// asItIs decodes nothing.
func asItIs(_ plan.PeerID, data []byte) (any, error) { return data, nil }

// listeners counts what each node hears.
func listeners(t *testing.T, all []*Swarm) []*atomic.Int64 {
	t.Helper()
	var counts []*atomic.Int64
	for _, s := range all {
		n := new(atomic.Int64)
		if err := s.Topics().Subscribe(topics.Events, asItIs, func(plan.PeerID, any) { n.Add(1) }); err != nil {
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

// TestFloodIsNotDecoded: of a member that says too much only what is taken is decoded, and that once.
func TestFloodIsNotDecoded(t *testing.T) {
	const said = 300
	synctest.Test(t, func(t *testing.T) {
		all := newVirtualNet(t).cluster(t, 2)
		heard := listeners(t, all[:1])
		var decoded, taken atomic.Int64
		err := all[1].Topics().Subscribe(topics.Events, func(_ plan.PeerID, data []byte) (any, error) {
			decoded.Add(1)
			return data, nil
		}, func(plan.PeerID, any) { taken.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		waitTopic(t, testContext(t), all, topics.Events)
		for range said {
			if err := all[0].Topics().Publish(t.Context(), topics.Events, []byte("again")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond) // virtual: as fast as a line takes them
		}
		time.Sleep(10 * time.Second) // virtual
		if decoded.Load() != taken.Load() || taken.Load() == 0 || taken.Load() > said/2 {
			t.Errorf("%d messages: %d decoded, %d taken", said, decoded.Load(), taken.Load())
		}
		if own := heard[0].Load(); own != said {
			t.Errorf("the sender hears %d of its own", own)
		}
	})
}

// copiesOfGossip has every node publish once a second, as it does heartbeats, and returns the bytes on the lines over those
// that came to somebody new.
func copiesOfGossip(t *testing.T, ctx context.Context, n *virtualNet, all []*Swarm) float64 {
	t.Helper()
	const seconds, size = 10, 900
	before := n.bytes.Load()
	for range seconds {
		for _, s := range all {
			if err := s.Topics().Publish(ctx, topics.Events, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // virtual
	}
	copies := float64(n.bytes.Load()-before) / float64(seconds*size*len(all)*(len(all)-1))
	t.Logf("%d nodes: %.1f copies of each message", len(all), copies)
	return copies
}

// Machines that are off do not delay the first contact with a member that is there, and are
// told of when there is none.
func TestVirtualConnectPastTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVirtualNet(t)
		o := testOwner(t)
		ctx := testContext(t)
		dead := peerstore.FullAddrs(testIdentity(t).ID(), n.Host().Listen) // nobody is there
		dead = append(dead, peerstore.FullAddrs(testIdentity(t).ID(), n.Host().Listen)...)
		cfg := testMember(t, o, testRun)
		cfg.Simulated = n.Host()
		there := start(t, cfg)
		cfg = testMember(t, o, testRun)
		cfg.Simulated = n.Host()
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
		cfg.Simulated = n.Host()
		a := start(t, cfg)
		cfg = testMember(t, o, testRun)
		cfg.Simulated = n.Host()
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
