package tcp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/transport"
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

// socket can be closed once, as a real one.
type socket struct {
	transport.GatedMaListener
	closed int
}

func (s *socket) Close() error {
	if s.closed++; s.closed > 1 {
		return net.ErrClosed
	}
	return nil
}

// A port that is closed by the host and by libp2p's loop of the same listener was closed without an error.
func TestPortIsClosedTwice(t *testing.T) {
	s := &socket{}
	p := newPort(s, nil)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.closed != 1 {
		t.Errorf("the socket was closed %d times", s.closed)
	}
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
