package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
	"pnode/swarm/transport"
)

// testNet connects services over loopback TCP, with every peer a member of every other.
type testNet struct {
	t     *testing.T
	nodes map[plan.PeerID]*testNode
}

type testNode struct {
	*Service
	net      *testNet
	id       plan.PeerID
	mu       sync.Mutex
	handlers map[string]func(context.Context, plan.PeerID, streams.Stream)
	accepted chan testAccepted
	served   chan net.Conn
	strange  []plan.PeerID // who are no members to this node
	far      []plan.PeerID // who are connected through a relay only
	mute     []plan.PeerID // who do not answer when they are dialed
}

type testAccepted struct {
	conn transport.Conn
	from plan.PeerID
}

func newTestNet(t *testing.T) *testNet { return &testNet{t: t, nodes: map[plan.PeerID]*testNode{}} }

// node starts a service; one with a rate relays.
func (n *testNet) node(id plan.PeerID, bytesPerS int64) *testNode {
	group := tasks.New()
	node := &testNode{
		net: n, id: id, handlers: map[string]func(context.Context, plan.PeerID, streams.Stream){},
		accepted: make(chan testAccepted), served: make(chan net.Conn, 64),
	}
	n.t.Cleanup(func() { group.Close(); group.Wait() })
	node.Service = New(Config{
		Self: id, Carrier: testCarrier{node, group}, Open: node.open, Handle: node.handle,
		Member: func(p plan.PeerID) bool { return !slices.Contains(node.strange, p) },
		Direct: func(p plan.PeerID) bool { // others than relays are not connected to each other
			other := n.nodes[p]
			return other != nil && (node.BytesPerS > 0 || other.BytesPerS > 0) && !slices.Contains(node.far, p)
		},
		Relays: func(plan.PeerID) (out []plan.PeerID) {
			for _, r := range n.nodes {
				if r.BytesPerS > 0 {
					out = append(out, r.id)
				}
			}
			slices.Sort(out)
			return out
		},
		Serve:     map[string]func(context.Context, net.Conn){"test/1": func(_ context.Context, c net.Conn) { node.served <- c }},
		BytesPerS: bytesPerS, Tasks: group, Log: slog.New(slog.DiscardHandler),
	})
	n.nodes[id] = node
	if bytesPerS > 0 {
		node.Offer()
	}
	return node
}

func (n *testNode) handle(proto string, f func(context.Context, plan.PeerID, streams.Stream)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers[proto] = f
}

func (n *testNode) open(_ context.Context, p plan.PeerID, proto string) (streams.Stream, error) {
	to := n.net.nodes[p]
	to.mu.Lock()
	f := to.handlers[proto]
	to.mu.Unlock()
	if f == nil {
		return nil, errors.New("protocol not supported")
	}
	ours, theirs := net.Pipe()
	to.Tasks.Run(func(ctx context.Context) {
		defer theirs.Close()
		f(ctx, n.id, testStream{theirs})
	})
	return testStream{ours}, nil
}

type testStream struct{ net.Conn }

func (s testStream) CloseWrite() error { return nil }
func (s testStream) Reset() error      { return s.Conn.Close() }

// testCarrier dials with a TCP connection that stands for a connection and its only stream.
type testCarrier struct {
	node  *testNode
	tasks *tasks.Group
}

func (c testCarrier) Accept(ctx context.Context) (transport.Conn, plan.PeerID, error) {
	select {
	case a := <-c.node.accepted:
		return a.conn, a.from, nil
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

func (c testCarrier) Dial(ctx context.Context, p plan.PeerID) (transport.Conn, error) {
	if slices.Contains(c.node.mute, p) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ours, theirs := tcpPair(c.node.net.t)
	select {
	case c.node.net.nodes[p].accepted <- testAccepted{theirs, c.node.id}:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c testCarrier) DialBack(ctx context.Context, p plan.PeerID) (transport.Conn, error) {
	return c.Dial(ctx, p)
}

// testConn is a TCP connection as a transport.Conn with one stream.
type testConn struct {
	*net.TCPConn
	ctx    context.Context
	cancel context.CancelFunc
}

var (
	_ transport.Conn   = testConn{}
	_ transport.Stream = testConnStream{}
)

func tcpPair(t *testing.T) (a, b testConn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	x, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	y, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(c net.Conn) testConn {
		ctx, cancel := context.WithCancel(context.Background())
		return testConn{c.(*net.TCPConn), ctx, cancel}
	}
	a, b = wrap(x), wrap(y)
	t.Cleanup(func() { a.Close(0, ""); b.Close(0, "") })
	return a, b
}

func (c testConn) OpenStream(context.Context) (transport.Stream, error) {
	return testConnStream{c.TCPConn}, nil
}

func (c testConn) AcceptStream(context.Context) (transport.Stream, error) {
	return testConnStream{c.TCPConn}, nil
}
func (c testConn) Context() context.Context { return c.ctx }
func (c testConn) Err() error               { return c.ctx.Err() }
func (c testConn) Close(transport.Code, string) {
	c.cancel()
	c.TCPConn.Close()
}
func (c testConn) Stats() transport.Stats    { return transport.Stats{} }
func (c testConn) Transport() plan.Transport { return plan.TCP }

type testConnStream struct{ *net.TCPConn }

func (s testConnStream) Close() error               { return s.CloseWrite() }
func (s testConnStream) CancelRead(transport.Code)  {}
func (s testConnStream) CancelWrite(transport.Code) {}
func (s testConnStream) SetUrgency(int8)            {}

// connect relays one connection between two nodes.
func (n *testNet) connect(a, b *testNode) (from, to net.Conn) {
	n.t.Helper()
	from, err := a.Dial(n.t.Context(), b.id, "test/1")
	if err != nil {
		n.t.Fatal(err)
	}
	select {
	case to = <-b.served:
	case <-time.After(30 * time.Second):
		n.t.Fatal("the called end got no connection")
	}
	return from, to
}

// opened returns how many connections a relay has open.
func (n *testNode) opened() int {
	n.Service.mu.Lock()
	defer n.Service.mu.Unlock()
	return n.Service.open.used
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

const fast = 1 << 30

func TestRelayedBytes(t *testing.T) {
	n := newTestNet(t)
	a, b, r := n.node("a", 0), n.node("b", 0), n.node("r", fast)
	from, to := n.connect(a, b)
	sent := bytes.Repeat([]byte("there and back "), 100_000)
	go func() {
		from.Write(sent)
		from.Close()
	}()
	got, err := io.ReadAll(to)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	to.Close()
	until(t, "the relay keeps the connection", func() bool { return r.opened() == 0 })
	if len(r.ends)+len(r.shares) > 0 {
		t.Errorf("left: %d tokens, %d pairs", len(r.ends), len(r.shares))
	}
}

// TestReversedDialFails: a peer that is connected but cannot dial this node is reached through a relay, soon.
func TestReversedDialFails(t *testing.T) {
	n := newTestNet(t)
	a, b := n.node("a", 0), n.node("b", fast)
	b.mute = []plan.PeerID{"a"}
	n.node("r", fast)
	ctx, cancel := context.WithTimeout(t.Context(), meetTime-2*time.Second)
	defer cancel()
	conn, err := a.Dial(ctx, b.id, "test/1")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	(<-b.served).Close()
}

// A relay that has no direct connection, or whose peer refuses, is passed over for the next.
// TestReversedDial: a node that can be dialed but cannot dial has the other end dial it, and relays for nobody then.
func TestReversedDial(t *testing.T) {
	n := newTestNet(t)
	public, hidden := n.node("public", 1<<30), n.node("hidden", 0)
	conn, err := public.Dial(t.Context(), "hidden", "test/1")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other := <-hidden.served
	defer other.Close()
	for i, ends := range [][2]net.Conn{{conn, other}, {other, conn}} {
		want := bytes.Repeat([]byte{byte(i + 1)}, 100_000)
		go func() { _, _ = ends[0].Write(want) }()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("direction %d: %v", i, err)
		}
	}
	public.mu.Lock()
	defer public.mu.Unlock()
	if len(public.ends) > 0 {
		t.Errorf("%d tokens are left over", len(public.ends))
	}
}

// TestReversedDialRefused: a peer that dials and refuses all the same leaves no connection open here.
func TestReversedDialRefused(t *testing.T) {
	n := newTestNet(t)
	public := n.node("public", fast)
	n.node("hidden", 0)
	ours, _ := tcpPair(t)
	n.nodes["hidden"].handle(callProtocol, func(_ context.Context, _ plan.PeerID, st streams.Stream) {
		m, err := read(st)
		if err != nil || !public.meet(m.token, "hidden", &pathConn{Stream: testConnStream{ours.TCPConn}, conn: ours}) {
			t.Errorf("the token is refused: %v", err)
		}
		if err := write(st, message{verdict: refused}); err != nil {
			t.Error(err)
		}
	})
	if _, err := public.reverse(t.Context(), "hidden", "test/1"); err == nil {
		t.Error("a refused call succeeds")
	}
	if ours.ctx.Err() == nil {
		t.Error("the connection stays open")
	}
}

func TestNextRelay(t *testing.T) {
	n := newTestNet(t)
	a, b := n.node("a", 0), n.node("b", 0)
	n.node("r1", fast).far = []plan.PeerID{"b"}
	second := n.node("r2", fast)
	n.connect(a, b)
	if second.opened() != 1 {
		t.Error("the second relay has no connection")
	}
}

func TestNobodyRelays(t *testing.T) {
	n := newTestNet(t)
	a, b := n.node("a", 0), n.node("b", 0)
	if _, err := a.Dial(t.Context(), b.id, "test/1"); !errors.Is(err, ErrNoRelay) {
		t.Errorf("error %v", err)
	}
	r := n.node("r", fast)
	b.strange = []plan.PeerID{"a"} // it knows nobody of that name
	if _, err := a.Dial(t.Context(), b.id, "test/1"); err == nil {
		t.Error("a stranger was relayed")
	}
	b.strange = nil
	if _, err := a.Dial(t.Context(), b.id, "other/1"); err == nil {
		t.Error("an ALPN that the peer does not serve was relayed")
	}
	if r.opened() > 0 {
		t.Errorf("%d connections stay open", r.opened())
	}
}

// A relay has this node dial no faster than it may, and only as often at once as others leave room: a place is held until
// the other end has proved who it is.
func TestCallsAreBounded(t *testing.T) {
	n := newTestNet(t)
	hidden, r := n.node("hidden", 0), n.node("r", fast)
	n.node("member", 0)
	hidden.served = make(chan net.Conn) // who calls proves nothing
	call := func() verdict {
		p, answer := r.prepare("member", message{peer: "hidden"})
		if p == nil {
			t.Fatal(answer.verdict)
		}
		defer r.end(p)
		got := r.call(t.Context(), p, "test/1")
		if got == accepted {
			until(t, "the other end does not come", func() bool {
				r.Service.mu.Lock()
				defer r.Service.mu.Unlock()
				return p.conns[1] != nil
			})
			r.Service.mu.Lock()
			p.conns[1].Write([]byte{0})
			r.Service.mu.Unlock()
		}
		return got
	}
	for i := range callsPerRelay {
		if got := call(); got != accepted {
			t.Fatalf("call %d: %s", i, got)
		}
	}
	if got := call(); got != busy {
		t.Errorf("a call beyond those at once: %s", got)
	}
	for range callsPerRelay {
		(<-hidden.served).Close()
	}
	until(t, "places are kept", func() bool {
		hidden.Service.mu.Lock()
		defer hidden.Service.mu.Unlock()
		return hidden.calls.used == 0
	})
	allowed := 0
	for range 10 * callsBurst {
		if hidden.takeCall("other") {
			hidden.give(&hidden.calls, "other")
			allowed++
		}
	}
	if allowed > 2*callsBurst {
		t.Errorf("%d calls at once, want about %d", allowed, callsBurst)
	}
}

// Tokens are good once, for the end that they were given to, and for some seconds.
func TestTokens(t *testing.T) {
	n := newTestNet(t)
	a, b, r := n.node("a", 0), n.node("b", 0), n.node("r", fast)
	thief := n.node("thief", 0)
	p, answer := r.prepare(a.id, message{peer: b.id, alpn: "test/1"})
	if p == nil {
		t.Fatal(answer.verdict)
	}
	show := func(who *testNode, tok token) bool {
		ours, _ := tcpPair(t)
		return r.meet(tok, who.id, &pathConn{Stream: testConnStream{ours.TCPConn}, conn: ours})
	}
	if show(thief, answer.token) || show(b, answer.token) {
		t.Error("another peer's token was accepted")
	}
	if show(a, token{}) {
		t.Error("a token that was never given was accepted")
	}
	if !show(a, answer.token) {
		t.Error("the token was refused")
	}
	if show(a, answer.token) {
		t.Error("the token was accepted twice")
	}
	r.expire(p)
	if show(b, p.tokens[1]) {
		t.Error("a token was accepted after its time")
	}
	if r.opened() != 0 {
		t.Errorf("%d connections stay open", r.opened())
	}
}

// A member that asks all the time gets openPerPeer connections, and others still get theirs.
func TestFlood(t *testing.T) {
	n := newTestNet(t)
	a, b, c, r := n.node("a", 0), n.node("b", 0), n.node("c", 0), n.node("r", fast)
	got := 0
	for range 20 * openPerPeer {
		if p, answer := r.prepare(a.id, message{peer: b.id}); p != nil {
			got++
		} else if answer.verdict != busy {
			t.Fatal(answer.verdict)
		}
	}
	if got != openPerPeer {
		t.Errorf("%d connections wait, want %d", got, openPerPeer)
	}
	n.connect(c, b)
	for i := range 2 * maxOpen { // many members
		r.prepare(plan.PeerID(rune('A'+i)), message{peer: b.id})
	}
	if r.opened() != maxOpen {
		t.Errorf("%d connections are open, want %d", r.opened(), maxOpen)
	}
}

// Members that hold all places give up those that one with fewer is due, the longest silent ones first.
func TestPlacesAreShared(t *testing.T) {
	n := newTestNet(t)
	b, r := n.node("b", 0), n.node("r", fast)
	ask := func(from plan.PeerID) *path {
		p, _ := r.prepare(from, message{peer: b.id})
		return p
	}
	var all []*path
	for range openPerPeer {
		for _, greedy := range []plan.PeerID{"1", "2", "3", "4"} {
			p := ask(greedy)
			if p == nil {
				t.Fatalf("%s gets no place while there are some", greedy)
			}
			all = append(all, p)
		}
	}
	active := all[:maxOpen/2]
	for _, p := range active {
		p.carried(1)
	}
	got := 0
	for ask("late") != nil {
		got++
	}
	if got != maxOpen/5 || r.opened() != maxOpen {
		t.Errorf("a fifth member gets %d places, %d are taken", got, r.opened())
	}
	for _, p := range active {
		if p.over {
			t.Errorf("an active connection of %s gave way", p.asker)
		}
	}
	if ask("1") != nil {
		t.Error("a member takes a place from one that has no more")
	}
}

// quietConn is a connection that carries nothing.
type quietConn struct{ transport.Conn }

func (quietConn) Close(transport.Code, string) {}

// A connection that carries nothing ends after silentTime, and another one does not.
func TestSilentConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := tasks.New()
		defer group.Wait()
		defer group.Close()
		r := New(Config{
			Self: "r", Carrier: testCarrier{&testNode{}, group}, Handle: func(string, func(context.Context, plan.PeerID, streams.Stream)) {},
			Direct: func(plan.PeerID) bool { return true }, BytesPerS: fast, Tasks: group, Log: slog.New(slog.DiscardHandler),
		})
		connected := func() *path {
			p, _ := r.prepare("a", message{peer: "b"})
			r.mu.Lock()
			defer r.mu.Unlock()
			p.conns = [2]*pathConn{{conn: quietConn{}}, {conn: quietConn{}}}
			return p
		}
		silent, busy := connected(), connected()
		for range 4 {
			time.Sleep(silentTime / 4)
			busy.carried(1)
		}
		synctest.Wait()
		if !silent.over || busy.over || r.open.used != 1 {
			t.Errorf("the silent one has ended: %v, the other one: %v; %d are open", silent.over, busy.over, r.open.used)
		}
		r.end(busy)
	})
}

// An end that is gone ends the other.
func TestBrokenEnd(t *testing.T) {
	n := newTestNet(t)
	a, b, r := n.node("a", 0), n.node("b", 0), n.node("r", fast)
	from, to := n.connect(a, b)
	from.(*pathConn).abort()
	if _, err := io.ReadAll(to); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Log(err)
	}
	to.Close()
	until(t, "the relay keeps the connection", func() bool { return r.opened() == 0 })
}

// The rate holds for all together, and a member that asked for many connections, to several others, gets no more than one
// that asked for one.
func TestRate(t *testing.T) {
	const bytesPerS = 2 << 20
	n := newTestNet(t)
	a, b, c, d := n.node("a", 0), n.node("b", 0), n.node("c", 0), n.node("d", 0)
	others := []*testNode{b, n.node("e", 0), n.node("f", 0), n.node("g", 0)}
	n.node("r", bytesPerS)
	var mu sync.Mutex
	got := map[plan.PeerID]int{}
	total := 0
	enough := make(chan struct{})
	pump := func(x, y *testNode) {
		from, to := n.connect(x, y)
		go func() {
			block := make([]byte, chunk)
			for {
				if _, err := from.Write(block); err != nil {
					return
				}
			}
		}()
		go func() {
			block := make([]byte, chunk)
			for {
				k, err := to.Read(block)
				mu.Lock()
				got[x.id] += k
				if total += k; total >= bytesPerS && total-k < bytesPerS {
					close(enough)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
	}
	began := time.Now()
	pump(c, d)
	for _, other := range others {
		pump(a, other)
	}
	<-enough
	took := time.Since(began)
	mu.Lock()
	many, one := got[a.id], got[c.id]
	mu.Unlock()
	if took < time.Second*9/10 {
		t.Errorf("%d bytes in %s", bytesPerS, took)
	}
	if many > 2*one {
		t.Errorf("who asked for 4 connections got %d bytes, who asked for one %d", many, one)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(message{verdict: busy, peer: "12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf", alpn: "pnode-data/1"}.encode())
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err == nil && (!bytes.Equal(m.encode(), b) || len(b) > maxMessage) {
			t.Fatalf("%x is written as %x", b, m.encode())
		}
	})
}
