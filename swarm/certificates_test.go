package swarm

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/quic-go/quic-go"

	"pnode/swarm/cert"
	"pnode/swarm/lifeline"
	"pnode/swarm/probe"
)

// TestCertificatesAreGoodAtAllTimes: whatever a node shows in a handshake, over each transport and of each protocol, is no
// certificate of the future to a machine whose clock was never set.
func TestCertificatesAreGoodAtAllTimes(t *testing.T) {
	ctx := testContext(t)
	began := time.Now().Truncate(time.Second)
	s := start(t, testMember(t, testOwner(t), testRun))
	me, err := cert.New(testIdentity(t).Key())
	if err != nil {
		t.Fatal(err)
	}
	conf := func(alpn string) *tls.Config {
		c, _ := me.ConfigForPeer(s.host.ID())
		c.NextProtos = []string{alpn}
		if alpn == "http/1.1" {
			c.VerifyPeerCertificate = nil // it proves nothing
		}
		return c
	}
	check := func(over, alpn string, state tls.ConnectionState) {
		t.Helper()
		if state.NegotiatedProtocol != alpn {
			t.Errorf("%s: %q is spoken, want %q", over, state.NegotiatedProtocol, alpn)
		}
		if got := state.PeerCertificates[0]; got.NotBefore.Unix() > 0 || got.NotAfter.Year() < 9999 {
			t.Errorf("%s, %s: good from %v to %v", over, alpn, got.NotBefore, got.NotAfter)
		} else if at := cert.Started(got); at.Before(began) || at.After(time.Now()) {
			t.Errorf("%s, %s: started at %v", over, alpn, at)
		}
	}
	at, err := manet.ToNetAddr(quicAddr(s).Decapsulate(ma.StringCast("/quic-v1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, alpn := range []string{"libp2p", dataALPN, probe.ALPN, lifeline.ALPN} {
		conn, err := quic.DialAddr(ctx, at.String(), conf(alpn), nil)
		if err != nil {
			t.Errorf("QUIC, %s: %v", alpn, err)
			continue
		}
		check("QUIC", alpn, conn.ConnectionState().TLS)
		conn.CloseWithError(0, "")
	}
	// TCP has the same port.
	for alpn, hello := range map[string]string{"libp2p": "\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n", "http/1.1": "", dataALPN: ""} {
		state, err := shownOverTCP(ctx, at.String(), hello, conf(alpn))
		if err != nil {
			t.Errorf("TCP, %s: %v", alpn, err)
			continue
		}
		check("TCP", alpn, state)
	}
}

// shownOverTCP makes a TLS handshake after a text that the other end repeats.
func shownOverTCP(ctx context.Context, at, hello string, conf *tls.Config) (tls.ConnectionState, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer raw.Close()
	if _, err := io.WriteString(raw, hello); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(raw, make([]byte, len(hello))); err != nil {
		return tls.ConnectionState{}, err
	}
	conn := tls.Client(raw, conf)
	err = conn.HandshakeContext(ctx)
	return conn.ConnectionState(), err
}
