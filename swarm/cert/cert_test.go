package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
)

// makesTLS makes libp2p's TLS over TCP for one node.
type makesTLS func(crypto.PrivKey, []upgrader.StreamMuxer) (sec.SecureTransport, error)

func libp2pTLS(key crypto.PrivKey, muxers []upgrader.StreamMuxer) (sec.SecureTransport, error) {
	return libp2ptls.New(libp2ptls.ID, key, muxers)
}

func ownTLS(key crypto.PrivKey, muxers []upgrader.StreamMuxer) (sec.SecureTransport, error) {
	return NewTLS(libp2ptls.ID, key, muxers)
}

// node is one end of a connection.
type node struct {
	id  peer.ID
	key crypto.PrivKey
	tls sec.SecureTransport
}

func newNode(t *testing.T, with makesTLS, muxers ...protocol.ID) node {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var all []upgrader.StreamMuxer
	for _, m := range muxers {
		all = append(all, upgrader.StreamMuxer{ID: m})
	}
	made, err := with(key, all)
	if err != nil {
		t.Fatal(err)
	}
	return node{id, key, made}
}

// shaken holds the outcome of a handshake at one end.
type shaken struct {
	conn sec.SecureConn
	err  error
}

// shake has one end dial and the other one listen over TCP, whose buffers take what nobody reads, and waits for both.
func shake(t *testing.T, dial, listen func(net.Conn) (sec.SecureConn, error)) (dialed, accepted shaken) {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	done := make(chan shaken, 1)
	go func() {
		there, err := at.Accept()
		if err != nil {
			done <- shaken{err: err}
			return
		}
		t.Cleanup(func() { there.Close() })
		c, err := listen(there)
		done <- shaken{c, err}
	}()
	here, err := net.Dial("tcp", at.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	c, err := dial(here)
	return shaken{c, err}, <-done
}

func (n node) dials(t *testing.T, p peer.ID) func(net.Conn) (sec.SecureConn, error) {
	return func(c net.Conn) (sec.SecureConn, error) { return n.tls.SecureOutbound(t.Context(), c, p) }
}

func (n node) listens(t *testing.T, p peer.ID) func(net.Conn) (sec.SecureConn, error) {
	return func(c net.Conn) (sec.SecureConn, error) { return n.tls.SecureInbound(t.Context(), c, p) }
}

// TestAClockThatIsBehindConnects: here it is the year 2000 where certificates are read, and 26 years and more later where they
// are made.
func TestAClockThatIsBehindConnects(t *testing.T) {
	for name, c := range map[string]struct {
		with makesTLS
		want bool
	}{
		"libp2p's certificates":     {libp2pTLS, false},
		"certificates of all times": {ownTLS, true},
	} {
		t.Run(name, func(t *testing.T) {
			dialer, listener := newNode(t, c.with, "/yamux/1.0.0"), newNode(t, c.with, "/yamux/1.0.0")
			synctest.Test(t, func(t *testing.T) {
				dialed, accepted := shake(t, dialer.dials(t, listener.id), listener.listens(t, ""))
				if (dialed.err == nil) != c.want || (accepted.err == nil) != c.want {
					t.Fatalf("handshakes: %v, %v", dialed.err, accepted.err)
				}
			})
		})
	}
}

// TestSpokenAsLibp2pDoes: with either of libp2p's own at the other end, who dials chooses the multiplexer, and both know each other.
func TestSpokenAsLibp2pDoes(t *testing.T) {
	for name, c := range map[string]struct {
		dials, listens makesTLS
		has            []protocol.ID // of who listens; who dials has b and a
		want           protocol.ID
	}{
		"both own":        {ownTLS, ownTLS, []protocol.ID{"a", "b"}, "b"},
		"libp2p dials":    {libp2pTLS, ownTLS, []protocol.ID{"a", "b"}, "b"},
		"libp2p listens":  {ownTLS, libp2pTLS, []protocol.ID{"a", "b"}, "b"},
		"one in common":   {ownTLS, ownTLS, []protocol.ID{"a", "c"}, "a"},
		"none in common":  {ownTLS, ownTLS, []protocol.ID{"c"}, ""},
		"libp2p has none": {ownTLS, libp2pTLS, nil, ""},
	} {
		dialer, listener := newNode(t, c.dials, "b", "a"), newNode(t, c.listens, c.has...)
		dialed, accepted := shake(t, dialer.dials(t, listener.id), listener.listens(t, dialer.id))
		if dialed.err != nil || accepted.err != nil {
			t.Errorf("%s: %v, %v", name, dialed.err, accepted.err)
			continue
		}
		for _, end := range []struct {
			sec.SecureConn
			self, other node
		}{{dialed.conn, dialer, listener}, {accepted.conn, listener, dialer}} {
			if end.LocalPeer() != end.self.id || end.RemotePeer() != end.other.id || !end.RemotePublicKey().Equals(end.other.key.GetPublic()) {
				t.Errorf("%s: %s connects to %s", name, end.LocalPeer(), end.RemotePeer())
			}
			if got := end.ConnState(); got.StreamMultiplexer != c.want || got.UsedEarlyMuxerNegotiation != (c.want != "") {
				t.Errorf("%s: %+v, want %q", name, got, c.want)
			}
		}
	}
}

// TestNobodyPassesForAnother: neither with a key of its own, nor with the proof that it saw in another one's certificate, nor without one.
func TestNobodyPassesForAnother(t *testing.T) {
	victim, honest, thief := newNode(t, ownTLS), newNode(t, ownTLS), newNode(t, ownTLS)
	refused := func(name string, dial, listen func(net.Conn) (sec.SecureConn, error), failed func(dialed, accepted shaken) error, mismatch bool) {
		t.Helper()
		dialed, accepted := shake(t, dial, listen)
		err := failed(dialed, accepted)
		if other := (sec.ErrPeerIDMismatch{}); err == nil || errors.As(err, &other) != mismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
	atDialer := func(dialed, _ shaken) error { return dialed.err }
	atListener := func(_, accepted shaken) error { return accepted.err }
	refused("another one listens", honest.dials(t, victim.id), thief.listens(t, ""), atDialer, true)
	refused("another one dials", thief.dials(t, honest.id), honest.listens(t, victim.id), atListener, true)

	certKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(of *ecdsa.PrivateKey) pkix.Extension {
		e, err := libp2ptls.GenerateSignedExtension(victim.key, of.Public())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, c := range map[string]struct {
		proof    []pkix.Extension
		begins   time.Time
		accepted bool
	}{
		"the proof of another certificate": {[]pkix.Extension{signed(seen)}, begin, false},
		"no proof":                         {nil, begin, false},
		"one of tomorrow":                  {[]pkix.Extension{signed(certKey)}, time.Now().Add(24 * time.Hour), false},
		"the proof itself":                 {[]pkix.Extension{signed(certKey)}, begin, true},
	} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: c.begins, NotAfter: end, ExtraExtensions: c.proof}
		der, err := x509.CreateCertificate(rand.Reader, template, template, certKey.Public(), certKey)
		if err != nil {
			t.Fatal(err)
		}
		conf := &tls.Config{
			MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"libp2p"}, //nolint:gosec // it lies, and believes all
			ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: certKey}},
		}
		liar := func(make func(net.Conn, *tls.Config) *tls.Conn) func(net.Conn) (sec.SecureConn, error) {
			return func(raw net.Conn) (sec.SecureConn, error) {
				c := &conn{Conn: make(raw, conf)}
				return c, c.HandshakeContext(t.Context())
			}
		}
		if dialed, _ := shake(t, honest.dials(t, victim.id), liar(tls.Server)); (dialed.err == nil) != c.accepted {
			t.Errorf("%s, listening: %v", name, dialed.err)
		}
		if _, accepted := shake(t, liar(tls.Client), honest.listens(t, "")); (accepted.err == nil) != c.accepted {
			t.Errorf("%s, dialing: %v", name, accepted.err)
		}
		conf.Certificates = nil
		if _, accepted := shake(t, liar(tls.Client), honest.listens(t, "")); accepted.err == nil {
			t.Errorf("%s: no certificate is accepted", name)
		}
	}
}

// TestStarted: a certificate says when it was made, and one of libp2p's own when it begins.
func TestStarted(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for name, c := range map[string]struct {
		cert x509.Certificate
		want time.Time
	}{
		"own":       {x509.Certificate{NotBefore: begin, Subject: pkix.Name{SerialNumber: "1790000000"}}, time.Unix(1790000000, 0)},
		"libp2p's":  {x509.Certificate{NotBefore: now.Add(-time.Hour), Subject: pkix.Name{SerialNumber: "1790000000"}}, now},
		"no number": {x509.Certificate{NotBefore: begin, Subject: pkix.Name{SerialNumber: "noon"}}, time.Time{}},
		"too late":  {x509.Certificate{NotBefore: begin, Subject: pkix.Name{SerialNumber: "9223372036854775807"}}, time.Time{}},
		"too early": {x509.Certificate{NotBefore: begin, Subject: pkix.Name{SerialNumber: "-1"}}, time.Time{}},
	} {
		if got := Started(&c.cert); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := New(key)
	if err != nil {
		t.Fatal(err)
	}
	conf, _ := id.ConfigForPeer("")
	made, err := x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := Started(made); got.Before(now) || got.After(time.Now()) {
		t.Errorf("made at %v, want now", got)
	}
}
