package diagnose

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/quic-go/quic-go"
)

// contact answers handshakes with one key.
type contact struct {
	id   peer.ID
	conf *tls.Config
}

// newContact returns a contact that was started at a time by its clock, with a certificate of libp2p's own.
func newContact(t *testing.T, started time.Time) contact {
	t.Helper()
	return newContactWith(t, x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{SerialNumber: "1"},
		NotBefore: started.Add(-time.Hour), NotAfter: started.Add(1000 * time.Hour),
	})
}

// newContactWith returns a contact with a certificate.
func newContactWith(t *testing.T, template x509.Certificate) contact {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := libp2ptls.NewIdentity(key, libp2ptls.WithCertTemplate(&template))
	if err != nil {
		t.Fatal(err)
	}
	conf, _ := identity.ConfigForPeer("")
	conf.VerifyPeerCertificate = nil
	return contact{id, conf}
}

// refusesCertificates makes the contact one that takes every certificate for one of the future, as one does whose clock
// is behind.
func (c contact) refusesCertificates() contact {
	c.conf.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("not yet valid") }
	return c
}

// udp answers QUIC handshakes.
func (c contact) udp(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := quic.ListenAddr("127.0.0.1:0", c.conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			if _, err := ln.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	return netip.MustParseAddrPort(ln.Addr().String())
}

// serve answers each TCP connection with a function, and closes it.
func serve(t *testing.T, answer func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				answer(c)
				c.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(ln.Addr().String())
}

// upgrade makes libp2p's handshake on a connection, as libp2p's own end does.
func (c contact) upgrade(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(multistream+tlsProtocol))); err != nil {
		return
	}
	if _, err := io.WriteString(conn, multistream+tlsProtocol); err != nil {
		return
	}
	secure := tls.Server(conn, c.conf)
	if err := secure.Handshake(); err != nil {
		return
	}
	_ = exchange(secure, multistream, multistream) // the other end hangs up
}

// TestHandshakes: each thing that can be in the way of a handshake over UDP or TCP has its finding.
func TestHandshakes(t *testing.T) {
	d, err := newDialer()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	good, future, behind := newContact(t, now), newContact(t, now.Add(3*time.Hour)), newContact(t, now).refusesCertificates()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	nobodyUDP, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobodyUDP.Close()
	nobodyTCP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobodyTCP.Close()
	at := func(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }
	tcp := func(c contact) netip.AddrPort { return serve(t, c.upgrade) }
	for name, c := range map[string]struct {
		do   func(context.Context, netip.AddrPort, peer.ID) outcome
		at   netip.AddrPort
		peer peer.ID
		want Finding
	}{
		"UDP":                        {d.udp, good.udp(t), good.id, Works},
		"UDP, silent":                {d.udp, at(silent.LocalAddr()), good.id, Silent},
		"UDP, nobody listens":        {d.udp, at(nobodyUDP.LocalAddr()), good.id, Refused},
		"UDP, another node":          {d.udp, good.udp(t), future.id, OtherNode},
		"UDP, contact of the future": {d.udp, future.udp(t), future.id, ClockBehind},
		"UDP, contact of the past":   {d.udp, behind.udp(t), behind.id, ClockAhead},
		"TCP":                        {d.tcp, tcp(good), good.id, Works},
		"TCP, nobody listens":        {d.tcp, at(nobodyTCP.Addr()), good.id, Refused},
		"TCP, another node":          {d.tcp, tcp(good), future.id, OtherNode},
		"TCP, contact of the future": {d.tcp, tcp(future), future.id, ClockBehind},
		"TCP, contact of the past":   {d.tcp, tcp(behind), behind.id, ClockAhead},
		"TCP, closed at once":        {d.tcp, serve(t, func(net.Conn) {}), good.id, Cut},
		"TCP, closed in the handshake": {d.tcp, serve(t, func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 32))
			_, _ = io.WriteString(c, multistream+tlsProtocol)
		}), good.id, Cut},
		"TCP, an answer of another kind": {d.tcp, serve(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }), good.id, Foreign},
		"TCP, swallowed":                 {d.tcp, serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), good.id, Cut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.do(t.Context(), c.at, c.peer)
			if got.finding != c.want {
				t.Errorf("%s (%v), want %s", got.finding, got.err, c.want)
			}
			if c.want == OtherNode && got.peer != good.id {
				t.Errorf("it is said to be %s, want %s", got.peer, good.id)
			}
		})
	}
}

// TestContactOfTheFuture: whose certificate is good at all times is connected to, and says when it was started.
func TestContactOfTheFuture(t *testing.T) {
	d, err := newDialer()
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	c := newContactWith(t, x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{SerialNumber: strconv.FormatInt(started.Unix(), 10)},
		NotBefore: time.Unix(0, 0), NotAfter: started.Add(1000 * time.Hour),
	})
	if got := d.udp(t.Context(), c.udp(t), c.id); got.finding != Works || !got.started.Equal(started) {
		t.Errorf("%s (%v), started at %v, want %v", got.finding, got.err, got.started, started)
	}
}

// TestSizes: on a path that takes everything the largest packets of QUIC pass.
func TestSizes(t *testing.T) {
	d, err := newDialer()
	if err != nil {
		t.Fatal(err)
	}
	c := newContact(t, time.Now())
	if got := d.udp(t.Context(), c.udp(t), c.id); got.size <= firstPacket {
		t.Errorf("packets of up to %d bytes pass on loopback, want more than %d", got.size, firstPacket)
	}
}

// TestProxies: a proxy's answer has its finding, and its clock is read.
func TestProxies(t *testing.T) {
	answering := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	other := func(text string) string {
		return serve(t, func(c net.Conn) { _, _ = io.WriteString(c, text) }).String()
	}
	for name, c := range map[string]struct {
		at   string
		want Finding
		says string
		date bool
	}{
		"connects":     {answering(200), Works, "the proxy connects", true},
		"wants a user": {answering(407), ProxyLogin, "the proxy does not take the user and password that it is given (it answers 407 Proxy Authentication Required)", true},
		"denies":       {answering(403), ProxyDenies, "the proxy does not connect to 192.0.2.1:4001 (it answers 403 Forbidden)", true},
		"cannot":       {answering(503), ProxyCannot, "the proxy gets no connection to 192.0.2.1:4001 (it answers 503 Service Unavailable)", true},
		"hangs up":     {other(""), Cut, "what answers is no proxy of this kind: it hangs up", false},
		"no proxy":     {other("SSH-2.0-OpenSSH\r\n\r\n"), Foreign, "what answers is no proxy of this kind", false},
		"not there":    {"127.0.0.1:1", Refused, "nobody listens where the proxy should", false},
	} {
		got, date := throughProxy(t.Context(), &url.URL{Scheme: "http", Host: c.at, User: url.UserPassword("me", "secret")}, place.String())
		if got.Finding != c.want || got.Says != c.says || (got.Do == "") != (c.want == Works) || date.IsZero() == c.date {
			t.Errorf("%s: %s, %q, date %v, want %s, %q", name, got.Finding, got.Says, date, c.want, c.says)
		}
	}
}

// TestNames: what the resolver says is told apart.
func TestNames(t *testing.T) {
	for want, err := range map[string]error{
		"the resolver 192.0.2.53 says that desk.example does not exist": &net.DNSError{IsNotFound: true, Server: "192.0.2.53"},
		"the resolver 192.0.2.53 does not answer for desk.example":      &net.DNSError{IsTimeout: true, Server: "192.0.2.53"},
		"the resolver fails for desk.example: server misbehaving":       &net.DNSError{Err: "server misbehaving"},
		"desk.example cannot be looked up: read: no such device":        errors.New("read: no such device"),
		"the resolver says that desk.example does not exist":            nil,
	} {
		if got := explainName("desk.example", nil, err); got.Says != want || got.Result != Fails || got.Do == "" {
			t.Errorf("%v: %s %q, want %q", err, got.Result, got.Says, want)
		}
	}
}

// TestClocks: a clock that is off is told from what others say, with no word about small differences.
func TestClocks(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		started time.Time
		late    time.Duration
		proxy   time.Duration
		want    string
		result  Result
	}{
		"nobody answered": {want: "no contact answered", result: NotTested},
		"right":           {started: now.Add(-time.Hour), want: "this machine's is not before the contact's start", result: OK},
		"behind":          {started: now.Add(30 * time.Minute), want: "this machine's clock is behind the contact's by at least 30 min: it has a time before the contact's start", result: Fails},
		"invite over":     {started: now.Add(-time.Hour), late: 26 * time.Hour, want: "this machine's clock is ahead of the contact's by at least 26 h: the invite, which is good, ended 26 h ago by it", result: Fails},
		"by the proxy":    {proxy: 72 * time.Hour, want: "this machine's clock is 3 days ahead of the clock of the proxy", result: Fails},
		"late by seconds": {started: now.Add(time.Second), want: "this machine's is not before the contact's start", result: OK},
	} {
		var dates []dated
		if c.proxy != 0 {
			dates = []dated{{"the proxy", now.Add(-c.proxy), now}}
		}
		if got := explainClock(now, c.started, c.late, dates); got.Says != c.want || got.Result != c.result {
			t.Errorf("%s: %s %q, want %s %q", name, got.Result, got.Says, c.result, c.want)
		}
	}
}

// TestTargets: one place for UDP and TCP of one port; a relay's place is where its contact is asked for.
func TestTargets(t *testing.T) {
	a, b := newContact(t, time.Now()).id, newContact(t, time.Now()).id
	got, err := targetsOf([]string{
		"/ip4/192.0.2.1/udp/4001/quic-v1/p2p/" + a.String(), "/ip4/192.0.2.1/tcp/4001/p2p/" + a.String(),
		"/dns/desk.example/tcp/443/tls/ws/p2p/" + a.String(),
		"/ip6/2001:db8::1/udp/4001/quic-v1/p2p/" + b.String() + "/p2p-circuit/p2p/" + a.String(),
	})
	want := []target{
		{host: "192.0.2.1", port: 4001, peer: a, udp: true, tcp: true, web: true},
		{host: "desk.example", port: 443, peer: a, web: true},
		{host: "2001:db8::1", port: 4001, peer: b, relay: true, udp: true},
	}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("place %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if _, err := targetsOf([]string{"/unix/tmp/p2p/" + a.String()}); err == nil {
		t.Error("an address without a host passes")
	}
}
