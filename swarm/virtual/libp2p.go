package virtual

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2p "github.com/libp2p/go-libp2p/core/transport"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/swarm/memory"
	"pnode/swarm/transport"
)

// libp2pALPN is the protocol of libp2p's own connections.
const libp2pALPN = "libp2p"

var quicV1 = ma.StringCast("/quic-v1")

// control carries libp2p's own connections without packets, in place of QUIC. The resource manager and the gater judge them as
// they do there.
type control struct {
	on        *direct
	self      peer.ID
	gater     connmgr.ConnectionGater
	resources network.ResourceManager
}

var _ libp2p.Transport = &control{}

// transport returns libp2p's transport, as its host asks for it.
func (d *direct) transport(key crypto.PrivKey, gater connmgr.ConnectionGater, resources network.ResourceManager) (*control, error) {
	self, err := peer.IDFromPrivateKey(key)
	return &control{d, self, gater, resources}, err
}

// Dial implements libp2p's Transport.
func (t *control) Dial(ctx context.Context, at ma.Multiaddr, p peer.ID) (libp2p.CapableConn, error) {
	scope, err := t.resources.OpenConnection(network.DirOutbound, false, at)
	if err != nil {
		return nil, err
	}
	c, err := t.dial(ctx, at, p, scope)
	if err != nil {
		scope.Done()
		return nil, err
	}
	return c, nil
}

func (t *control) dial(ctx context.Context, at ma.Multiaddr, p peer.ID, scope network.ConnManagementScope) (*conn, error) {
	if err := scope.SetPeer(p); err != nil {
		return nil, err
	}
	raw, other, err := t.on.dial(ctx, libp2pALPN, t.self, at)
	if err != nil {
		return nil, err
	}
	c := &conn{raw, t, other, multiaddr(t.on.addr), at, scope}
	switch {
	case other != p:
		err = fmt.Errorf("%s is %s, not %s", at, other, p)
	case !t.gater.InterceptSecured(network.DirOutbound, p, c):
		err = errors.New("the connection is gated")
	}
	if err != nil {
		raw.Close(transport.Code(network.ConnGated), "")
		return nil, err
	}
	return c, nil
}

// CanDial implements libp2p's Transport.
func (t *control) CanDial(at ma.Multiaddr) bool {
	_, err := at.ValueForProtocol(ma.P_QUIC_V1)
	return err == nil
}

// Listen implements libp2p's Transport.
func (t *control) Listen(ma.Multiaddr) (libp2p.Listener, error) {
	l, err := t.on.listen(libp2pALPN, t.self)
	if err != nil {
		return nil, err
	}
	return controlListener{l, t}, nil
}

// Protocols implements libp2p's Transport.
func (t *control) Protocols() []int { return []int{ma.P_QUIC_V1} }

// Proxy implements libp2p's Transport.
func (t *control) Proxy() bool { return false }

// controlListener accepts libp2p's own connections.
type controlListener struct {
	*listener
	control *control
}

// Accept implements libp2p's Listener.
func (l controlListener) Accept() (libp2p.CapableConn, error) {
	for {
		in, err := l.accept(context.Background())
		if err != nil {
			return nil, libp2p.ErrListenerClosed
		}
		c, err := l.admit(in)
		if err == nil {
			return c, nil
		}
		in.Close(transport.Code(network.ConnResourceLimitExceeded), "")
	}
}

// admit counts a connection, if the resource manager and the gater let it in.
func (l controlListener) admit(in incoming) (*conn, error) {
	at := multiaddr(in.RemoteAddr().(*net.UDPAddr).AddrPort())
	scope, err := l.control.resources.OpenConnection(network.DirInbound, false, at)
	if err != nil {
		return nil, err
	}
	c := &conn{in.Conn, l.control, in.from, l.Multiaddr(), at, scope}
	if err := scope.SetPeer(in.from); err != nil {
		scope.Done()
		return nil, err
	}
	if gater := l.control.gater; !gater.InterceptAccept(c) || !gater.InterceptSecured(network.DirInbound, in.from, c) {
		scope.Done()
		return nil, errors.New("the connection is gated")
	}
	return c, nil
}

// Addr implements libp2p's Listener.
func (l controlListener) Addr() net.Addr { return l.on.udp() }

// Multiaddr implements libp2p's Listener.
func (l controlListener) Multiaddr() ma.Multiaddr { return multiaddr(l.on.addr) }

// conn is a connection of libp2p.
type conn struct {
	*memory.Conn
	control  *control
	other    peer.ID
	at, from ma.Multiaddr
	scope    network.ConnManagementScope
}

// OpenStream implements libp2p's CapableConn.
func (c *conn) OpenStream(ctx context.Context) (network.MuxedStream, error) {
	return streamOf(c.Conn.OpenStream(ctx))
}

// AcceptStream implements libp2p's CapableConn.
func (c *conn) AcceptStream() (network.MuxedStream, error) {
	return streamOf(c.Conn.AcceptStream(context.Background()))
}

// Close implements libp2p's CapableConn.
func (c *conn) Close() error { return c.CloseWithError(0) }

// CloseWithError implements libp2p's CapableConn.
func (c *conn) CloseWithError(code network.ConnErrorCode) error {
	c.Conn.Close(transport.Code(code), "")
	c.scope.Done()
	return nil
}

// IsClosed implements libp2p's CapableConn.
func (c *conn) IsClosed() bool { return c.Err() != nil }

// As implements libp2p's CapableConn: there is nothing else below.
func (c *conn) As(any) bool { return false }

// LocalPeer implements libp2p's CapableConn.
func (c *conn) LocalPeer() peer.ID { return c.control.self }

// RemotePeer implements libp2p's CapableConn.
func (c *conn) RemotePeer() peer.ID { return c.other }

// RemotePublicKey implements libp2p's CapableConn. A peer ID holds the key.
func (c *conn) RemotePublicKey() crypto.PubKey {
	key, err := c.other.ExtractPublicKey()
	if err != nil {
		return nil
	}
	return key
}

// ConnState implements libp2p's CapableConn.
func (c *conn) ConnState() network.ConnectionState {
	return network.ConnectionState{Transport: "quic-v1"}
}

// LocalMultiaddr implements libp2p's CapableConn.
func (c *conn) LocalMultiaddr() ma.Multiaddr { return c.at }

// RemoteMultiaddr implements libp2p's CapableConn.
func (c *conn) RemoteMultiaddr() ma.Multiaddr { return c.from }

// Scope implements libp2p's CapableConn.
func (c *conn) Scope() network.ConnScope { return c.scope }

// Transport implements libp2p's CapableConn.
func (c *conn) Transport() libp2p.Transport { return c.control }

// stream is a stream of libp2p.
type stream struct{ transport.Stream }

func streamOf(s transport.Stream, err error) (network.MuxedStream, error) {
	if err != nil {
		return nil, translated(err)
	}
	return stream{s}, nil
}

func (s stream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	return n, translated(err)
}

func (s stream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	return n, translated(err)
}

// Close implements libp2p's MuxedStream.
func (s stream) Close() error {
	s.CancelRead(0)
	return s.Stream.Close()
}

// CloseRead implements libp2p's MuxedStream.
func (s stream) CloseRead() error {
	s.CancelRead(0)
	return nil
}

// CloseWrite implements libp2p's MuxedStream.
func (s stream) CloseWrite() error { return s.Stream.Close() }

// Reset implements libp2p's MuxedStream.
func (s stream) Reset() error { return s.ResetWithError(0) }

// ResetWithError implements libp2p's MuxedStream.
func (s stream) ResetWithError(code network.StreamErrorCode) error {
	s.CancelRead(transport.Code(code))
	s.CancelWrite(transport.Code(code))
	return nil
}

// translated returns errors of ends that close as libp2p's.
func translated(err error) error {
	if closed := new(transport.ConnError); errors.As(err, &closed) {
		return &network.ConnError{Remote: closed.Remote, ErrorCode: network.ConnErrorCode(closed.Code), TransportError: err}
	}
	if cut := new(transport.StreamError); errors.As(err, &cut) {
		return &network.StreamError{Remote: cut.Remote, ErrorCode: network.StreamErrorCode(cut.Code), TransportError: err}
	}
	return err
}
