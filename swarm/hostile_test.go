package swarm

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/quic-go/quic-go"

	"pnode/swarm/websocket"
)

// hostile makes connections to a member that no honest node makes, below libp2p: it keeps none of libp2p's limits.
type hostile struct {
	to   peer.ID
	udp  *net.UDPAddr
	tcp  string
	from net.Addr // of TCP connections; nil is any
	quic *quic.Transport
}

// attack makes one hostile connection and returns when the other side has ended it.
type attack func(hostile, context.Context) error

// attacks are the kinds of hostile connections.
var attacks = []attack{
	// QUIC connections with streams that wait for a verdict, and data to the windows.
	func(h hostile, ctx context.Context) error {
		conn, err := h.dial(ctx, "libp2p")
		if err != nil {
			return err
		}
		defer conn.CloseWithError(0, "")
		for range 30 {
			if _, err := h.open(ctx, conn, "/pnode/peers/1", flood); err != nil {
				return err
			}
		}
		return ended(ctx, conn)
	},
	// TCP connections that never finish the handshake.
	func(h hostile, ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.tcp)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		_, err = io.Copy(io.Discard, conn)
		return err
	},
	// TCP connections with half a ClientHello, with half a request over TLS, and with a WebSocket that carries nothing.
	func(h hostile, ctx context.Context) error { return h.overTCP(ctx, halfHello) },
	func(h hostile, ctx context.Context) error { return h.overTCP(ctx, halfRequest) },
	func(h hostile, ctx context.Context) error { return h.overTCP(ctx, emptyWebSocket) },
	// Greetings that never send.
	func(h hostile, ctx context.Context) error { return h.greet(ctx, func(*quic.Stream) {}) },
	// Greetings that drip.
	func(h hostile, ctx context.Context) error { return h.greet(ctx, drip) },
	// Data connections, with data to the windows.
	func(h hostile, ctx context.Context) error {
		conn, err := h.dial(ctx, dataALPN)
		if err != nil {
			return err
		}
		defer conn.CloseWithError(0, "")
		for range 4 {
			st, err := conn.OpenUniStreamSync(ctx)
			if err != nil {
				return err
			}
			go flood(st)
		}
		return ended(ctx, conn)
	},
}

// overTCP begins something on a TCP connection, and returns when the other side has ended it.
func (h hostile) overTCP(ctx context.Context, begin func(net.Conn) (net.Conn, error)) error {
	raw, err := (&net.Dialer{LocalAddr: h.from}).DialContext(ctx, "tcp", h.tcp)
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn, err := begin(raw)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

func halfHello(raw net.Conn) (net.Conn, error) {
	_, err := raw.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3})
	return raw, err
}

func halfRequest(raw net.Conn) (net.Conn, error) {
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	_, err := io.WriteString(conn, "GET /pnode HTTP/1.1\r\nHost: x\r\n")
	return conn, err
}

func emptyWebSocket(raw net.Conn) (net.Conn, error) {
	return websocket.Client(context.Background(), tls.Client(raw, &tls.Config{InsecureSkipVerify: true}), "x", "/pnode")
}

// dial makes a QUIC connection under a fresh peer ID.
func (h hostile) dial(ctx context.Context, alpn string) (*quic.Conn, error) {
	key, _, err := crypto.GenerateEd25519Key(nil)
	if err != nil {
		return nil, err
	}
	return h.dialAs(ctx, key, alpn)
}

func (h hostile) dialAs(ctx context.Context, key crypto.PrivKey, alpn string) (*quic.Conn, error) {
	identity, err := libp2ptls.NewIdentity(key)
	if err != nil {
		return nil, err
	}
	conf, _ := identity.ConfigForPeer(h.to)
	conf.NextProtos = []string{alpn}
	return h.quic.Dial(ctx, h.udp, conf, &quic.Config{MaxIncomingStreams: 256, KeepAlivePeriod: 5 * time.Second})
}

// open opens a stream of a protocol and lets write go on with it.
func (h hostile) open(ctx context.Context, conn *quic.Conn, proto string, write func(io.Writer)) (*quic.Stream, error) {
	st, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, token := range []string{"/multistream/1.0.0", proto} {
		b = append(binary.AppendUvarint(b, uint64(len(token)+1)), token+"\n"...)
	}
	go func() {
		if _, err := st.Write(b); err == nil {
			write(st)
		}
	}()
	return st, nil
}

// greet opens a greeting.
func (h hostile) greet(ctx context.Context, write func(*quic.Stream)) error {
	conn, err := h.dial(ctx, "libp2p")
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	if _, err := h.open(ctx, conn, "/pnode/hello/1", func(w io.Writer) { write(w.(*quic.Stream)) }); err != nil {
		return err
	}
	return ended(ctx, conn)
}

// ended blocks until the other side has closed a connection.
func ended(ctx context.Context, conn *quic.Conn) error {
	select {
	case <-conn.Context().Done():
		return context.Cause(conn.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flood writes until it is stopped.
func flood(w io.Writer) { floodBy(w, 64<<10) }

// floodBy is flood with blocks of some size.
func floodBy(w io.Writer, blockBytes int) {
	block := make([]byte, blockBytes)
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// drip sends the length of a hello, and then a byte of it now and then.
func drip(st *quic.Stream) {
	if _, err := st.Write(binary.LittleEndian.AppendUint32(nil, 4000)); err != nil {
		return
	}
	for range time.Tick(500 * time.Millisecond) {
		if _, err := st.Write([]byte{0}); err != nil {
			return
		}
	}
}

// target is where a member is attacked, from a socket of the attacker's own.
func target(t testing.TB, s *Swarm, socket net.PacketConn) hostile {
	t.Helper()
	at, err := manet.ToNetAddr(quicAddr(s).Decapsulate(ma.StringCast("/quic-v1")))
	if err != nil {
		t.Fatal(err)
	}
	addr := at.(*net.UDPAddr)
	tr := &quic.Transport{Conn: socket}
	t.Cleanup(func() {
		tr.Close()
		socket.Close()
	})
	return hostile{to: s.host.ID(), udp: addr, tcp: addr.String(), quic: tr}
}
