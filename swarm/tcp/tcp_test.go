package tcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
)

// hello returns the ClientHello of a client that offers protocols.
func hello(t testing.TB, alpns ...string) []byte {
	here, there := net.Pipe()
	go tls.Client(there, &tls.Config{NextProtos: alpns, ServerName: "example.org"}).Handshake()
	defer here.Close()
	b := make([]byte, maxHello)
	n, err := here.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if need := 5 + int(b[3])<<8 + int(b[4]); need > n {
		m, err := io.ReadFull(here, b[n:need])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	return b[:n]
}

// A ClientHello tells its protocols, and all that was read is given back.
func TestClientHello(t *testing.T) {
	sent := append(hello(t, "pnode-data/1", "h2"), "and more"...)
	r := bytes.NewReader(sent)
	protocols, head, err := clientHello(r)
	if err != nil || !slices.Equal(protocols, []string{"pnode-data/1", "h2"}) {
		t.Errorf("protocols %q: %v", protocols, err)
	}
	rest, _ := io.ReadAll(r)
	if !bytes.Equal(append(head, rest...), sent) {
		t.Error("what was read is not given back")
	}
	if _, _, err := clientHello(bytes.NewReader(sent[:100])); err == nil {
		t.Error("half a ClientHello is taken")
	}
	endless := io.MultiReader(bytes.NewReader([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xFF, 0xFF}), neverEnds{})
	if _, _, err := clientHello(endless); err == nil {
		t.Error("a ClientHello without end is taken")
	}
}

type neverEnds struct{}

func (neverEnds) Read(b []byte) (int, error) { return len(b), nil }

// FuzzClientHello reads what strangers send first: it ends, and reads at most maxHello.
func FuzzClientHello(f *testing.F) {
	f.Add(hello(f, "pnode-data/1"))
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		protocols, head, err := clientHello(bytes.NewReader(b))
		if len(head) > maxHello || err == nil && !bytes.HasPrefix(b, head) {
			t.Errorf("%q of %d bytes: %v", protocols, len(head), err)
		}
	})
}

// answering writes before it reads, as a WebSocket that is pinged does.
type answering struct{ net.Conn }

func (c answering) Read(b []byte) (int, error) {
	if _, err := c.Write(b); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// A stranger that does not read the answers to its pings keeps no place.
func TestSortOfOneThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		new(port).sort(&Conn{Conn: answering{here}, scope: &network.NullScope{}}, plan.WebSocket)
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("its connection: %v, want it closed", err)
		}
	})
}

// Addresses say where a WebSocket is asked for.
func TestSites(t *testing.T) {
	for addr, want := range map[string]site{
		"/ip4/192.0.2.1/tcp/443":                      {at: "192.0.2.1:443", port: "443", name: "192.0.2.1", secure: true},
		"/ip6/2001:db8::1/tcp/443/wss":                {at: "[2001:db8::1]:443", port: "443", name: "2001:db8::1", secure: true},
		"/dns4/example.org/tcp/8080/ws":               {at: "example.org:8080", port: "8080", name: "example.org"},
		"/dns4/example.org/tcp/443/tls/ws":            {at: "example.org:443", port: "443", name: "example.org", secure: true},
		"/ip4/192.0.2.1/tcp/443/tls/sni/a.example/ws": {at: "192.0.2.1:443", port: "443", name: "a.example", secure: true},
	} {
		a := ma.StringCast(addr)
		if got, err := siteOf(a); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", addr, got, err, want)
		}
		if !new(Transport).CanDial(a) {
			t.Errorf("%s cannot be dialed", addr)
		}
	}
	for _, addr := range []string{"/ip4/192.0.2.1/udp/1/quic-v1", "/ip4/192.0.2.1/tcp/1/p2p/12D3KooWGzxzKZYveHXtpG6AsrUJBcWxHBFS2HsEoGTxrMLvKXtf/p2p-circuit"} {
		if new(Transport).CanDial(ma.StringCast(addr)) {
			t.Errorf("%s can be dialed", addr)
		}
	}
}

// The environment names a proxy for what is not excluded.
func TestFromEnvironment(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	want := func(target, want string) {
		t.Helper()
		via, err := FromEnvironment(target)
		if got := ""; err != nil || via != nil && via.String() != want || via == nil && want != got {
			t.Errorf("proxy for %s: %v, %v, want %q", target, via, err, want)
		}
	}
	want("192.0.2.1:443", "")
	t.Setenv("all_proxy", "socks5://10.0.0.1:1080")
	want("192.0.2.1:443", "socks5://10.0.0.1:1080")
	t.Setenv("HTTPS_PROXY", "http://me:secret@10.0.0.1:3128")
	want("192.0.2.1:443", "http://me:secret@10.0.0.1:3128")
	want("127.0.0.1:443", "")
	t.Setenv("NO_PROXY", "192.0.2.0/24,.example.org")
	want("192.0.2.1:443", "")
	want("a.example.org:443", "")
	want("198.51.100.1:443", "http://me:secret@10.0.0.1:3128")
}

// A proxy is asked with the name and password of its URL, and its refusal is told.
func TestConnect(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := make(chan string, 1)
	answer := make(chan string, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1<<10)
			n, _ := c.Read(b)
			asked <- string(b[:n])
			io.WriteString(c, <-answer)
			c.Close()
		}
	}()
	via := mustURL(t, "http://me:secret@"+ln.Addr().String())
	answer <- "HTTP/1.1 200 Connection established\r\n\r\n"
	conn, err := through(t.Context(), via, "192.0.2.1:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := <-asked; !bytes.HasPrefix([]byte(got), []byte("CONNECT 192.0.2.1:443 HTTP/1.1\r\n")) || !bytes.Contains([]byte(got), []byte("Basic bWU6c2VjcmV0")) {
		t.Errorf("the proxy was asked %q", got)
	}
	for _, a := range []string{"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n\r\n", "nonsense", "HTTP/1.1 200 OK\r\n\r\nhello"} {
		answer <- a
		_, err := through(t.Context(), via, "192.0.2.1:443")
		<-asked
		if err == nil || bytes.Contains([]byte(err.Error()), []byte("secret")) {
			t.Errorf("a proxy that answers %q: %v", a, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := through(ctx, via, "192.0.2.1:443"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if _, err := through(t.Context(), mustURL(t, "ftp://10.0.0.1"), "192.0.2.1:443"); err == nil {
		t.Error("a proxy of another kind is taken")
	}
}

// A dial over a proxy by TLS may be given up as soon as it begins: the race detector sees that nothing is shared.
func TestConnectOverTLSGivenUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	via := mustURL(t, "https://"+ln.Addr().String())
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if c, err := ln.Accept(); err == nil {
				defer c.Close()
			}
			cancel()
		}()
		if _, err := through(ctx, via, "192.0.2.1:443"); err == nil {
			t.Error("a proxy that says nothing is taken")
		}
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
