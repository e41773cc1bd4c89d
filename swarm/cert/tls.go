package cert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
)

// TLS is libp2p's TLS over TCP, spoken on the wire as libp2p's own is. libp2p checks the other end's certificate.
type TLS struct {
	id       protocol.ID
	self     peer.ID
	identity *libp2ptls.Identity
	muxers   []string // in the order of preference
}

var _ sec.SecureTransport = (*TLS)(nil)

// NewTLS returns the TLS of a key's owner, whose certificate is good at all times.
func NewTLS(id protocol.ID, key crypto.PrivKey, muxers []upgrader.StreamMuxer) (*TLS, error) {
	self, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("swarm: TLS: %w", err)
	}
	identity, err := New(key)
	if err != nil {
		return nil, fmt.Errorf("swarm: TLS: %w", err)
	}
	t := &TLS{id: id, self: self, identity: identity}
	for _, m := range muxers {
		t.muxers = append(t.muxers, string(m.ID))
	}
	return t, nil
}

// ID returns the name of the protocol.
func (t *TLS) ID() protocol.ID { return t.id }

// SecureInbound makes the handshake of who is dialed, with a peer or, where that is empty, with any. The multiplexer is the one that the
// dialer likes best.
func (t *TLS) SecureInbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	conf, proven := t.config(p)
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		for _, proto := range hello.SupportedProtos {
			if slices.Contains(t.muxers, proto) {
				conf.NextProtos = []string{proto}
				break
			}
		}
		return conf, nil
	}
	return t.secure(ctx, tls.Server(insecure, conf), proven)
}

// SecureOutbound makes the handshake of who dials a peer. That the other end refuses the own certificate is seen at the first Read.
func (t *TLS) SecureOutbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	conf, proven := t.config(p)
	return t.secure(ctx, tls.Client(insecure, conf), proven)
}

// config returns the configuration of one handshake, which passes on the key that the other end proves.
func (t *TLS) config(p peer.ID) (*tls.Config, <-chan crypto.PubKey) {
	conf, proven := t.identity.ConfigForPeer(p)
	conf.NextProtos = slices.Concat(t.muxers, conf.NextProtos)
	return conf, proven
}

// secure makes a handshake and closes the connection where it fails.
func (t *TLS) secure(ctx context.Context, raw *tls.Conn, proven <-chan crypto.PubKey) (_ sec.SecureConn, err error) {
	defer func() {
		if err != nil {
			raw.NetConn().Close()
		}
	}()
	if err := raw.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	var key crypto.PubKey
	select {
	case key = <-proven: // nil once it is closed
	default:
	}
	if key == nil {
		return nil, errors.New("the other end of a TLS connection proved no key")
	}
	p, err := peer.IDFromPublicKey(key)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, self: t.self, peer: p, key: key}
	if proto := raw.ConnectionState().NegotiatedProtocol; slices.Contains(t.muxers, proto) {
		c.state = network.ConnectionState{StreamMultiplexer: protocol.ID(proto), UsedEarlyMuxerNegotiation: true}
	}
	return c, nil
}

// conn is a connection whose other end proved its key.
type conn struct {
	*tls.Conn
	self, peer peer.ID
	key        crypto.PubKey
	state      network.ConnectionState
}

func (c *conn) LocalPeer() peer.ID { return c.self }

func (c *conn) RemotePeer() peer.ID { return c.peer }

func (c *conn) RemotePublicKey() crypto.PubKey { return c.key }

func (c *conn) ConnState() network.ConnectionState { return c.state }
