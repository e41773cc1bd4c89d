package consensus

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// cluster is a run of several nodes in one bubble of virtual time.
type cluster struct {
	t      *testing.T
	net    *memoryNet
	peers  []plan.PeerID
	kv     map[plan.PeerID]*memoryKV
	nodes  map[plan.PeerID]*Node
	wires  map[plan.PeerID]*memoryTransport
	epochs uint64
	// recoverAfter is when nodes that are started from now on recover the run by themselves; 0 is never.
	recoverAfter time.Duration

	hearing   sync.Mutex // guards lastHeard
	lastHeard map[[2]plan.PeerID]time.Time
}

// inBubble runs a test with a cluster of n active nodes named a, b, ..., founded by a, and
// ends all nodes afterwards; the bubble fails the test when a goroutine is left.
func inBubble(t *testing.T, n int, test func(*testing.T, *cluster)) {
	inBubbleOf(t, newMemoryNet(20*time.Millisecond), n, test)
}

// inBubbleOf does so on a network that was made for the test.
func inBubbleOf(t *testing.T, net *memoryNet, n int, test func(*testing.T, *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		net.heal = make(chan struct{}) // a channel of the bubble
		c := &cluster{
			t: t, net: net, kv: map[plan.PeerID]*memoryKV{},
			nodes: map[plan.PeerID]*Node{}, wires: map[plan.PeerID]*memoryTransport{}, lastHeard: map[[2]plan.PeerID]time.Time{},
		}
		go c.gossip(t.Context())
		defer func() {
			for _, p := range c.peers {
				c.stop(p)
			}
		}()
		for i := range n {
			c.join(plan.PeerID(rune('a' + i)))
		}
		c.settle(n)
		test(t, c)
	})
}

func (c *cluster) start(p plan.PeerID) *Node {
	c.t.Helper()
	if c.kv[p] == nil {
		c.kv[p] = newMemoryKV()
		c.peers = append(c.peers, p)
	}
	c.wires[p] = c.net.join(p)
	node, err := Start(context.Background(), Config{
		Transport: c.wires[p], KV: c.kv[p], Run: "run", Signer: keyOf(p), Bootstrap: p == "a",
		Owner: testOwner, Proof: []byte("owner " + p),
		Contacts: c.net.peers, Heard: c.heard(p), RecoverAfter: c.recoverAfter,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[p] = node
	return node
}

// join starts a node and brings it into the roster as active.
func (c *cluster) join(p plan.PeerID) *Node {
	c.t.Helper()
	n := c.start(p)
	c.epochs++
	c.letIn(p)
	c.must(n, Join{Peer: p, ProcessEpoch: c.epochs})
	c.must(n, SetMemberState{Peer: p, ProcessEpoch: c.epochs, State: Active})
	return n
}

// letIn has the log note, in a run that has an owner, that a peer comes by an invite of its own.
func (c *cluster) letIn(p plan.PeerID) {
	c.t.Helper()
	l := c.leader()
	if l == nil || len(l.State().Owners) == 0 || l.State().Admitted(p) {
		return
	}
	serial, owner := c.epochs, l.State().Owners[0]
	as := &author{Signer: keyOf(owner), self: owner, run: "run"}
	if n := c.nodes[owner]; n != nil {
		as = n.author // which may propose something itself meanwhile: no number twice
	}
	for _, e := range []Entry{fresh(testInvite(serial, owner, 1, false)), testRedeem(serial, p, p)} {
		b, err := as.sign(l.State(), e)
		if err == nil {
			err = l.commit(c.t.Context(), b.encode())
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// crash ends a node as a kill does: its streams break first.
func (c *cluster) crash(p plan.PeerID) {
	c.wires[p].crash()
	c.nodes[p].Close()
	delete(c.nodes, p)
}

func (c *cluster) stop(p plan.PeerID) {
	if c.nodes[p] != nil {
		c.crash(p)
	}
}

func (c *cluster) must(n *Node, e Entry) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.Propose(ctx, e); err != nil {
		c.t.Fatal(err)
	}
}

// until waits, up to 30 s of virtual time, for a condition.
func (c *cluster) until(what string, ok func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 30*time.Second {
			c.t.Fatalf("after %v still not: %s", time.Since(began), what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// settle waits until n members have as many voters as they should, and nobody else is a server of raft.
func (c *cluster) settle(n int) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d members with %d voters", n, Voters(n)), func() bool {
		l := c.leader()
		if l == nil || l.State().present() != n || len(l.Servers()) != Voters(n) {
			return false
		}
		for _, s := range l.Servers() {
			m, _ := l.State().Member(s.Peer)
			if here := c.nodes[s.Peer]; here == nil || m.State == Gone || !s.Voter || !slices.Contains(here.Servers(), s) {
				return false
			}
		}
		return true
	})
}

// spares returns the members that live and have no vote by the leader's log, in order.
func (c *cluster) spares() (spares []*Node) {
	c.t.Helper()
	voters := votersOf(c.leader().Servers())
	for _, p := range c.peers {
		if m, _ := c.leader().State().Member(p); c.nodes[p] != nil && m.State == Active && !slices.Contains(voters, p) {
			spares = append(spares, c.nodes[p])
		}
	}
	return spares
}

// leader is the node that may plan; nil when there is none.
func (c *cluster) leader() *Node {
	for _, p := range c.peers {
		if n := c.nodes[p]; n != nil {
			if _, _, self := n.Leader(); self {
				return n
			}
		}
	}
	return nil
}

// follower is a node that does not lead.
func (c *cluster) follower() *Node {
	for _, p := range c.peers {
		if n := c.nodes[p]; n != nil {
			if _, _, self := n.Leader(); !self {
				return n
			}
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// everywhere waits until all live nodes agree with what ok wants of their state.
func (c *cluster) everywhere(what string, ok func(State) bool) {
	c.t.Helper()
	for _, p := range c.peers {
		if n := c.nodes[p]; n != nil {
			c.until(fmt.Sprintf("%s at %s", what, p), func() bool { return ok(n.State()) })
		}
	}
}

// goesOn has a node propose what it may, and waits until all live nodes have it.
func (c *cluster) goesOn(n *Node) {
	c.t.Helper()
	c.epochs++
	mark := fmt.Sprint(c.epochs)
	m, _ := c.leader().State().Member(n.self) // the node may know it a moment later
	c.must(n, Update{Peer: n.self, ProcessEpoch: m.ProcessEpoch, Addrs: []string{mark}})
	c.everywhere("the update", func(s State) bool {
		m, ok := s.Member(n.self)
		return ok && len(m.Addrs) == 1 && m.Addrs[0] == mark
	})
}

// testOwner takes a for the owner of a test's run.
func testOwner(peer plan.PeerID, proof []byte) error {
	if peer != "a" || string(proof) != "owner a" {
		return errNoOwner
	}
	return nil
}

// testRun is the run that a founds.
func testRun() SetRun { return runOf("a") }

func runOf(owner plan.PeerID) SetRun {
	return SetRun{Owner: owner, Spec: plan.RunSpec{
		Run: "run", Model: model.Config{Vocab: 256, Context: 8, Blocks: 1, Heads: 1, Channels: 8},
		Train: plan.TrainSpec{Steps: 100, Micros: 2, MicroBatch: 1},
	}}
}
