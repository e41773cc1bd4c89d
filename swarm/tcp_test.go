package swarm

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"pnode/planner/plan"
)

// overTCP lists the addresses of a swarm on loopback whose transport is TCP alone.
func overTCP(s *Swarm) (out []string) {
	for _, a := range s.Addrs() {
		if strings.HasPrefix(a, "/ip4/127.0.0.1/tcp/") {
			out = append(out, a)
		}
	}
	return out
}

// A node that knows a TCP address alone joins, and its data takes the same port. A node that listens on every interface
// has hosts of libp2p beside its own, to find out who reaches it.
func TestJoinOverTCP(t *testing.T) {
	o, ctx := testOwner(t), testContext(t)
	cfg := testMember(t, o, testRun)
	cfg.Listen = []string{"0.0.0.0:0"}
	a, b := start(t, cfg), start(t, testMember(t, o, testRun))
	if err := b.Connect(ctx, overTCP(a)...); err != nil {
		t.Fatal(err)
	}
	conn, err := b.Data().Dial(ctx, a.ID(), plan.TCP)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.Transport(); got != plan.TCP {
		t.Errorf("data goes over %s", got)
	}
}

// connectProxy forwards what CONNECT asks for to one target, whatever it names, and counts.
type connectProxy struct {
	target string
	count  atomic.Int64
}

func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "CONNECT alone", http.StatusMethodNotAllowed)
		return
	}
	there, err := net.Dial("tcp", p.target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	p.count.Add(1)
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		there.Close()
		return
	}
	io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		io.Copy(there, buffered)
		there.Close()
	}()
	io.Copy(here, there)
	here.Close()
}

// Who gets out through an HTTP proxy alone joins with the addresses that others dial directly, and exchanges data.
func TestJoinThroughAProxy(t *testing.T) {
	o, ctx := testOwner(t), testContext(t)
	a, b := start(t, testMember(t, o, testRun)), start(t, testMember(t, o, testRun))
	_, rest, _ := strings.Cut(overTCP(a)[0], "/tcp/")
	port, _, _ := strings.Cut(rest, "/")
	proxy := &connectProxy{target: "127.0.0.1:" + port}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy}
	go server.Serve(ln)
	defer server.Close()
	b.host.TCP.ProxyFor = func(string) (*url.URL, error) { return &url.URL{Scheme: "http", Host: ln.Addr().String()}, nil }
	unreachable := "/ip4/127.0.0.2/tcp/9/p2p/" + string(a.ID()) // nobody listens there, but the proxy knows better
	if err := b.Connect(ctx, unreachable); err != nil {
		t.Fatal(err)
	}
	if proxy.count.Load() == 0 {
		t.Fatal("joined past the proxy")
	}
	before := proxy.count.Load()
	conn, err := b.Data().Dial(ctx, a.ID(), plan.WebSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(0, "")
	if conn.Transport() != plan.WebSocket || proxy.count.Load() == before {
		t.Errorf("data goes over %s, by %d connections of the proxy", conn.Transport(), proxy.count.Load()-before)
	}
	there, _, err := a.Data().Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if st, err := conn.OpenStream(context.Background()); err == nil {
			st.Write(make([]byte, 1<<20))
			st.Close()
		}
	}()
	st, err := there.AcceptStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, st); n != 1<<20 || err != nil {
		t.Errorf("%d bytes arrived: %v", n, err)
	}
}

// Strangers that hold every place over TCP, with connections that say nothing or half of something, keep no member's data
// out, and each is ended without its doing.
func TestSilentStrangersOverTCP(t *testing.T) {
	o, ctx := testOwner(t), testContext(t)
	a, b := start(t, testMember(t, o, testRun)), start(t, testMember(t, o, testRun))
	if err := b.Connect(ctx, a.Addrs()...); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(overTCP(a)[0], "/tcp/")
	port, _, _ := strings.Cut(rest, "/")
	h := hostile{tcp: "127.0.0.1:" + port, from: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if ln, err := net.ListenTCP("tcp", h.from.(*net.TCPAddr)); err != nil {
		t.Skipf("loopback has one address here: %v", err)
	} else {
		ln.Close()
	}
	nothing := func(raw net.Conn) (net.Conn, error) { return raw, nil }
	begun, ended := make(chan struct{}, 400), make(chan struct{}, 400)
	for i := range cap(begun) {
		kind := []func(net.Conn) (net.Conn, error){nothing, halfHello, halfRequest, emptyWebSocket}[i%4]
		go func() {
			h.overTCP(ctx, func(raw net.Conn) (net.Conn, error) {
				conn, err := kind(raw)
				begun <- struct{}{}
				return conn, err
			})
			ended <- struct{}{}
		}()
	}
	for range cap(begun) {
		select {
		case <-begun:
		case <-ctx.Done():
			t.Fatal("the strangers' connections take too long to begin")
		}
	}
	for range 8 {
		conn, err := b.Data().Dial(ctx, a.ID(), plan.TCP)
		if err != nil {
			t.Fatal(err)
		}
		there, from, err := a.Data().Accept(ctx)
		if err != nil || from != b.ID() || there.Transport() != plan.TCP {
			t.Fatalf("accepted %v of %s: %v", there, from, err)
		}
		conn.Close(0, "")
	}
	for range cap(ended) {
		select {
		case <-ended:
		case <-ctx.Done():
			t.Fatal("a stranger's connection stays open")
		}
	}
}
