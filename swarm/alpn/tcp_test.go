package alpn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/tcp"
	"pnode/swarm/transport"
	"pnode/swarm/version"
)

func tcpAddr(e end) ma.Multiaddr {
	for _, a := range e.Host.Addrs() {
		if e.Host.TCP.CanConnect(a) {
			return a
		}
	}
	panic("no TCP address")
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// echoed sends a few bytes over a connection and wants them back from the other end.
func echoed(t *testing.T, ctx context.Context, conn transport.Conn, e end) {
	t.Helper()
	there, _, err := e.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st, err := conn.OpenStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if in, err := there.AcceptStream(ctx); err == nil {
			io.Copy(in, in)
			in.Close()
		}
	}()
	if _, err := st.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	st.Close()
	if got, err := io.ReadAll(st); err != nil || string(got) != "hello" {
		t.Errorf("back came %q: %v", got, err)
	}
}

// Members reach each other over TCP as over QUIC, on the same port as libp2p; the peer ID is proved.
func TestDialOverTCP(t *testing.T) {
	a, b := pair(t)
	ctx := within(t)
	for _, over := range []plan.Transport{plan.TCP, plan.WebSocket, plan.QUIC} {
		conn, err := a.Dial(ctx, b.id.Peer(), over)
		if err != nil {
			t.Fatal(err)
		}
		if conn.Transport() != over {
			t.Errorf("connected over %s, want %s", conn.Transport(), over)
		}
		echoed(t, ctx, conn, b)
	}
	if got := a.Transports(b.id.Peer()); !slices.Equal(got[:2], []plan.Transport{plan.QUIC, plan.TCP}) {
		t.Errorf("transports %v, want QUIC before TCP", got)
	}
	stranger, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.dialAddr(ctx, stranger.ID(), tcpAddr(b), plan.TCP, nil); err == nil || !strings.Contains(err.Error(), "peer id mismatch") {
		t.Errorf("dial of a wrong peer ID: %v", err)
	}
	newer := &Transport{Config: a.Config, identity: a.identity}
	newer.ALPN = "pnode-test/2"
	if _, err := newer.dialAddr(ctx, b.id.ID(), tcpAddr(b), plan.TCP, nil); !errors.Is(err, version.Err) || !strings.Contains(err.Error(), "pnode-test/2") {
		t.Errorf("dial of another version: %v", err)
	}
}

// With this machine's address connections over TCP end, at this end alone, and QUIC's stay.
func TestMovedEndsWhatIsOverTCP(t *testing.T) {
	a, b := pair(t)
	ctx := within(t)
	conns := map[plan.Transport]transport.Conn{}
	for _, over := range []plan.Transport{plan.TCP, plan.WebSocket, plan.QUIC} {
		var err error
		if conns[over], err = a.Dial(ctx, b.id.Peer(), over); err != nil {
			t.Fatal(err)
		}
	}
	a.Moved([]netip.Addr{netip.MustParseAddr("192.0.2.1")})
	for over, conn := range conns {
		if conn.Err() != nil {
			t.Errorf("%s has ended with another address: %v", over, conn.Err())
		}
	}
	a.Moved([]netip.Addr{netip.MustParseAddr("127.0.0.1")})
	for over, conn := range conns {
		closed := new(transport.ConnError)
		if err := conn.Err(); over == plan.QUIC && err != nil || over != plan.QUIC && (err == nil || errors.As(err, &closed)) {
			t.Errorf("%s: %v", over, err)
		}
	}
}

// Where UDP gets no answer the data plane runs over TCP, and says why.
func TestTCPWhereUDPIsSilent(t *testing.T) {
	a, b := pair(t)
	ctx, p := within(t), b.id.ID()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, c := range a.Host.Network().ConnsToPeer(p) {
		c.Close()
	}
	a.Host.Peerstore().ClearAddrs(p)
	port := silent.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	a.Host.Peerstore().AddAddrs(p, []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", port)), tcpAddr(b)}, time.Hour)
	conn, err := a.Dial(ctx, b.id.Peer(), "")
	if err != nil {
		t.Fatal(err)
	}
	if conn.Transport() != plan.TCP {
		t.Fatalf("connected over %s, want TCP", conn.Transport())
	}
	if why := a.Why(b.id.Peer(), plan.TCP); why != "UDP has not answered yet" {
		t.Errorf("%q", why)
	}
	for a.Why(b.id.Peer(), plan.TCP) != "UDP gets no answer" { // the try over UDP goes on until its time is over
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%q", a.Why(b.id.Peer(), plan.TCP))
		}
	}
	if _, _, err := b.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	if got := b.Why(a.id.Peer(), plan.TCP); got != "" {
		t.Errorf("%q, at the end that was dialed, which tried nothing", got)
	}
	if got := a.Transports(b.id.Peer()); got[0] != plan.TCP {
		t.Errorf("transports %v after UDP has failed", got)
	}
}

// A stranger's connection is closed after the handshake, before anything is read from it.
func TestStrangerOverTCP(t *testing.T) {
	_, b := pair(t)
	ctx := within(t)
	id, err := admission.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := &Transport{Config: b.Config, conns: map[transport.Conn]peer.ID{}}
	if x.identity, err = libp2ptls.NewIdentity(id.Key()); err != nil {
		t.Fatal(err)
	}
	raw, err := manet.Dial(tcpAddr(b))
	if err != nil {
		t.Fatal(err)
	}
	conf, _ := x.tls(b.id.ID())
	conn := tls.Client(raw, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	answer := make([]byte, 1<<10)
	n, err := io.ReadAtLeast(conn, answer, 24)
	if err != nil || !strings.HasSuffix(string(answer[:n]), "not an admitted member") {
		t.Errorf("a stranger reads %q: %v", answer[:n], err)
	}
	if raw, err = manet.Dial(tcpAddr(b)); err != nil {
		t.Fatal(err)
	}
	refused, err := x.Client(ctx, raw, b.id.ID(), plan.TCP)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-refused.Context().Done():
	case <-ctx.Done():
		t.Fatal("the connection of a stranger stays open")
	}
	if closed, ok := transport.ClosedBy(refused.Err()); !ok || closed.Code != transport.CodeNotMember {
		t.Errorf("a stranger is told %v", refused.Err())
	}
	if len(b.queue) > 0 || len(b.conns) > 0 {
		t.Error("a stranger was let in")
	}
}

// A firewall or a NAT that refuses one address of a peer does not make it dead.
func TestRefusesWhereAnotherTransportIsLeft(t *testing.T) {
	a, b := pair(t)
	ctx, p := within(t), b.id.ID()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().(*net.TCPAddr).AddrPort()
	ln.Close()
	a.proved.note(p, plan.TCP, provedAddr{closed, true})
	if a.Refuses(ctx, b.id.Peer()) {
		t.Error("a peer is dead over UDP that was never tried")
	}
	for _, over := range []plan.Transport{plan.QUIC, plan.WebSocket} {
		a.Choice.Failed(b.id.Peer(), over, "gets no answer")
	}
	if !a.Refuses(ctx, b.id.Peer()) {
		t.Error("a peer is alive of which everything has failed")
	}
	a.mu.Lock()
	delete(a.proved.addrs, p)
	a.mu.Unlock()
	for _, c := range a.Host.Network().ConnsToPeer(p) {
		c.Close()
	}
	at := tcpAddr(b)
	a.Host.Peerstore().ClearAddrs(p)
	if _, err := a.dialAddr(ctx, p, at, plan.TCP, nil); err != nil {
		t.Fatal(err)
	}
	if got := a.proved.listensAt(p); len(got) > 0 {
		t.Errorf("asks at %v, which the peer does not announce", got)
	}
	a.Host.Peerstore().AddAddr(p, at, time.Hour)
	if got := a.proved.listensAt(p); len(got) != 1 {
		t.Errorf("asks at %v, of one address that the peer announces", got)
	}
}

// What a caller waited for in vain is found out also where it gives up before the dial does.
func TestSilenceIsNotedWhenTheCallerGivesUp(t *testing.T) {
	a, b := pair(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, c := range a.Host.Network().ConnsToPeer(b.id.ID()) {
		c.Close()
	}
	a.Host.Peerstore().ClearAddrs(b.id.ID())
	a.Host.Peerstore().AddAddr(b.id.ID(), ma.StringCast(fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", ln.Addr().(*net.TCPAddr).Port)), time.Hour)
	ctx, cancel := context.WithTimeout(within(t), noAnswer+3*time.Second) // the dial may begin late
	defer cancel()
	if _, err := a.Dial(ctx, b.id.Peer(), plan.TCP); err == nil {
		t.Fatal("connected to a listener that is silent")
	}
	if got := a.Why(b.id.Peer(), plan.WebSocket); got != "TCP gets no answer" {
		t.Errorf("TCP %q", got)
	}
}

// A connection that came when its caller had given up serves the next dial, at once.
func TestLateConnectionServesTheNextDial(t *testing.T) {
	a, b := pair(t)
	ctx, p := within(t), b.id.ID()
	ready := make(chan struct{})
	late := func(context.Context) (transport.Conn, error) {
		<-ready
		return a.dialOver(ctx, p, plan.TCP, nil)
	}
	gone, giveUp := context.WithCancel(ctx)
	giveUp()
	if _, err := a.first(gone, dialStagger, []try{late}, func(conn transport.Conn) { a.late.keep(p, conn) }); err == nil {
		t.Fatal("connected without waiting")
	}
	close(ready)
	if _, _, err := b.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	kept := func() transport.Conn {
		a.late.mu.Lock()
		defer a.late.mu.Unlock()
		return a.late.conns[p]
	}
	for kept() == nil && ctx.Err() == nil {
		runtime.Gosched()
	}
	want := kept()
	if got, err := a.Dial(ctx, b.id.Peer(), plan.QUIC); err != nil || got.Transport() != plan.QUIC {
		t.Errorf("a dial over QUIC gives %v: %v", got, err)
	}
	if got, err := a.Dial(ctx, b.id.Peer(), ""); err != nil || got != want {
		t.Errorf("the next dial gives another connection: %v", err)
	}
	if kept() != nil {
		t.Error("a connection is handed out twice")
	}
}

// The connections over TCP of a removed member are closed.
func TestDropOverTCP(t *testing.T) {
	a, b := pair(t)
	ctx := within(t)
	conn, err := a.Dial(ctx, b.id.Peer(), plan.TCP)
	if err != nil {
		t.Fatal(err)
	}
	there, _, err := b.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.Peers.Block(a.id.ID(), admission.Removed("removed"))
	b.Drop(a.id.ID())
	for _, c := range []transport.Conn{conn, there} {
		select {
		case <-c.Context().Done():
		case <-ctx.Done():
			t.Fatal("a connection of a removed peer stays open")
		}
	}
	if closed, ok := transport.ClosedBy(conn.Err()); !ok || closed.Code != transport.CodeNotMember {
		t.Errorf("the removed peer is told %v", conn.Err())
	}
}

// A process that has ended is found out over TCP, and a live one is not taken for dead.
func TestRefusesOverTCP(t *testing.T) {
	a, b := pair(t)
	ctx := within(t)
	if _, err := a.Dial(ctx, b.id.Peer(), plan.TCP); err != nil {
		t.Fatal(err)
	}
	if a.Refuses(ctx, b.id.Peer()) {
		t.Error("a live peer refuses")
	}
	at := a.proved.listensAt(b.id.ID())
	if !at[plan.TCP].IsValid() {
		t.Fatalf("peer proved at %v, want a TCP address", at)
	}
	b.Close()
	if err := b.Host.Close(); err != nil {
		t.Fatal(err)
	}
	for !a.Refuses(ctx, b.id.Peer()) {
		if ctx.Err() != nil {
			t.Fatal("a peer that has ended does not refuse")
		}
	}
}

// A member that asks to be dialed is dialed where it is connected from and at public addresses, nowhere else, whatever it
// says of itself: neither at addresses nor by names that lead to private ones.
func TestDialBack(t *testing.T) {
	ctx := within(t)
	a, b := pair(t)
	// b may not have seen yet that a has connected.
	if err := b.Host.Connect(ctx, peer.AddrInfo{ID: a.id.ID(), Addrs: a.Host.Addrs()}); err != nil {
		t.Fatal(err)
	}
	conn, err := b.DialBack(ctx, a.Self())
	if err != nil {
		t.Fatal(err)
	}
	echoed(t, ctx, conn, a)
	may := ownOrPublic(b.Host, a.id.ID())
	for text, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.2": false, "::1": false, "10.0.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"fe80::1": false, "fd00::1": false, "0.0.0.0": false, "224.0.0.1": false, "8.8.8.8": true, "2001:4860:4860::8888": true,
	} {
		if got := may(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is allowed: %v", text, got)
		}
	}

	victim, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("no second address on loopback:", err)
	}
	defer victim.Close()
	dialed := make(chan struct{}, 1)
	go func() {
		if c, err := victim.Accept(); err == nil {
			c.Close()
			dialed <- struct{}{}
		}
	}()
	port := victim.Addr().(*net.TCPAddr).Port
	at := ma.StringCast(fmt.Sprintf("/ip4/127.0.0.2/tcp/%d", port))
	named := ma.StringCast(fmt.Sprintf("/dns4/localhost/tcp/%d", port))
	never := func(netip.Addr) bool { return false }
	for _, try := range []func() (net.Conn, error){
		func() (net.Conn, error) { return b.Host.TCP.Connect(ctx, at, may) },
		func() (net.Conn, error) { return b.Host.TCP.ConnectWeb(ctx, at, may) },
		func() (net.Conn, error) { return b.Host.TCP.Connect(ctx, named, never) },
		func() (net.Conn, error) { return b.Host.TCP.ConnectWeb(ctx, named, never) },
	} {
		if c, err := try(); !errors.Is(err, tcp.ErrNotAllowed) {
			t.Errorf("%v, %v, want %v", c, err, tcp.ErrNotAllowed)
		}
	}
	if _, err := resolved(ctx, ma.StringCast("/dns4/localhost/udp/9/quic-v1"), never); !errors.Is(err, tcp.ErrNotAllowed) {
		t.Errorf("a name that leads to a private address: %v", err)
	}
	b.Host.Peerstore().AddAddr(a.id.ID(), at, time.Hour)
	if conn, err := b.dialOver(ctx, a.id.ID(), plan.TCP, may); err != nil {
		t.Errorf("a at its own address: %v", err)
	} else {
		conn.Close(0, "")
	}
	select {
	case <-dialed:
		t.Error("the other host was dialed")
	default:
	}
}

// A member that was only called, and never dialed the other one over TCP, finds out where to ask when that one ends: libp2p has
// a connection with it.
func TestRefusesWhoOnlyCalled(t *testing.T) {
	a, b := pair(t)
	ctx := within(t)
	if err := b.Host.Connect(ctx, peer.AddrInfo{ID: a.id.ID(), Addrs: a.Host.Addrs()}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Dial(ctx, b.id.Peer(), plan.TCP); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	if b.RefusesTCP(ctx, a.Self()) {
		t.Error("a live peer refuses")
	}
	a.Close()
	if err := a.Host.Close(); err != nil {
		t.Fatal(err)
	}
	for !b.RefusesTCP(ctx, a.Self()) {
		if ctx.Err() != nil {
			t.Fatalf("a peer that has ended does not refuse: proved at %v", b.proved.listensAt(a.id.ID()))
		}
	}
}
