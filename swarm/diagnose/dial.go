package diagnose

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"pnode/swarm/cert"
	"pnode/swarm/neterr"
	"pnode/swarm/tcp"
)

const (
	// handshakeTime bounds a handshake.
	handshakeTime = 5 * time.Second
	// sizesTime bounds how long larger and larger packets are tried on a connection, one at most each keepAlive.
	sizesTime = 2 * time.Second
	keepAlive = 50 * time.Millisecond
	// firstPacket is the size of packets that a connection begins with, as all of pnode's, in bytes of UDP.
	firstPacket = 1200
)

// outcome holds what a handshake found.
type outcome struct {
	finding Finding
	err     error
	// connected reports whether a TCP connection came about.
	connected bool
	// peer is the node that answered in place of the contact.
	peer peer.ID
	// started is when the contact was started by its own clock, at the earliest; zero if it is not known.
	started time.Time
	// size is the largest packet that passed, in bytes of UDP; sized says that larger ones do not.
	size  int
	sized bool
}

// dialer makes handshakes with one identity, which is nobody's.
type dialer struct {
	identity *libp2ptls.Identity
}

func newDialer() (*dialer, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("swarm: diagnose: %w", err)
	}
	id, err := cert.New(key)
	if err != nil {
		return nil, fmt.Errorf("swarm: diagnose: %w", err)
	}
	return &dialer{id}, nil
}

// seen holds what the other end's certificate says.
type seen struct {
	mu     sync.Mutex // guards the fields below
	begins time.Time
	// started is when the other end was started by its clock; zero if that is not known.
	started time.Time
	err     error
}

// tls returns the configuration of one handshake with p, and what is seen in it.
func (d *dialer) tls(p peer.ID) (*tls.Config, *seen) {
	conf, _ := d.identity.ConfigForPeer(p)
	conf.NextProtos = []string{"libp2p"}
	s := &seen{}
	verify := conf.VerifyPeerCertificate
	conf.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
		err := verify(raw, chains)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
		if len(raw) == 1 {
			if c, err := x509.ParseCertificate(raw[0]); err == nil {
				s.begins, s.started = c.NotBefore, cert.Started(c)
			}
		}
		return err
	}
	return conf, s
}

// outcome returns what a handshake found that ended with an error, or with none.
func (s *seen) outcome(err error, now time.Time) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := outcome{finding: findingOf(err), err: err, started: s.started}
	var other sec.ErrPeerIDMismatch
	switch {
	case s.err == nil:
	case errors.As(s.err, &other):
		o.finding, o.peer, o.err = OtherNode, other.Actual, s.err
	case now.Before(s.begins):
		o.finding, o.err = ClockBehind, s.err
	default:
		o.finding, o.err = Foreign, s.err
	}
	return o
}

// udp makes a QUIC handshake over a socket of its own, and finds out which packets pass.
func (d *dialer) udp(ctx context.Context, at netip.AddrPort, p peer.ID) outcome {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "udp", at.String())
	if err != nil {
		return outcome{finding: findingOf(err), err: err}
	}
	udp, ok := raw.(*net.UDPConn)
	if !ok {
		return outcome{finding: Failed, err: fmt.Errorf("a %T, want a UDP socket", raw)}
	}
	socket := &connectedSocket{conn: udp}
	transport := &quic.Transport{Conn: socket}
	defer socket.Close()
	defer transport.Close()
	sizes := &sizeRecorder{done: make(chan struct{})}
	conf, seen := d.tls(p)
	conn, err := transport.Dial(ctx, raw.RemoteAddr(), conf, &quic.Config{
		InitialPacketSize: firstPacket, HandshakeIdleTimeout: handshakeTime, MaxIdleTimeout: handshakeTime,
		KeepAlivePeriod: keepAlive, // larger packets are tried when others are sent
		Versions:        []quic.Version{quic.Version1},
		Tracer:          func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return sizes },
	})
	if err != nil {
		if icmp := socket.failure(); icmp != nil {
			err = icmp
		}
		return seen.outcome(err, time.Now())
	}
	defer conn.CloseWithError(0, "")
	wait, stop := context.WithTimeout(ctx, sizesTime)
	defer stop()
	select {
	case <-conn.Context().Done():
		return seen.outcome(context.Cause(conn.Context()), time.Now())
	case <-sizes.done:
	case <-wait.Done():
	}
	o := seen.outcome(nil, time.Now())
	o.size, o.sized = sizes.result()
	return o
}

// connectedSocket is a UDP socket with one other end: the kernel tells it what ICMP says about that one. It hides what
// else a UDP socket can do, so that QUIC uses ReadFrom and WriteTo.
type connectedSocket struct {
	conn *net.UDPConn
	mu   sync.Mutex // guards err
	err  error      // the first that says something about the other end
}

var _ net.PacketConn = (*connectedSocket)(nil)

func (s *connectedSocket) note(err error) {
	if slices.Contains([]Finding{Works, Silent, Failed, GivenUp}, findingOf(err)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		if neterr.DatagramRefused(err) && !neterr.Refused(err) { // Windows calls it a reset
			s.err = fmt.Errorf("%w: %w", syscall.ECONNREFUSED, err)
		}
	}
}

func (s *connectedSocket) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *connectedSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := s.conn.Read(b)
	s.note(err)
	return n, s.conn.RemoteAddr(), err
}

func (s *connectedSocket) WriteTo(b []byte, _ net.Addr) (int, error) {
	n, err := s.conn.Write(b)
	s.note(err)
	return n, err
}

func (s *connectedSocket) Close() error                          { return s.conn.Close() }
func (s *connectedSocket) LocalAddr() net.Addr                   { return s.conn.LocalAddr() }
func (s *connectedSocket) SetDeadline(t time.Time) error         { return s.conn.SetDeadline(t) }
func (s *connectedSocket) SetReadDeadline(t time.Time) error     { return s.conn.SetReadDeadline(t) }
func (s *connectedSocket) SetWriteDeadline(t time.Time) error    { return s.conn.SetWriteDeadline(t) }
func (s *connectedSocket) SetReadBuffer(n int) error             { return s.conn.SetReadBuffer(n) }
func (s *connectedSocket) SetWriteBuffer(n int) error            { return s.conn.SetWriteBuffer(n) }
func (s *connectedSocket) SyscallConn() (syscall.RawConn, error) { return s.conn.SyscallConn() }

// sizeRecorder hears which packets pass on a connection, and nothing else.
type sizeRecorder struct {
	mu   sync.Mutex // guards size and end
	size int
	end  bool
	done chan struct{} // closed when no larger packet will pass
}

var (
	_ qlogwriter.Trace    = (*sizeRecorder)(nil)
	_ qlogwriter.Recorder = (*sizeRecorder)(nil)
)

func (r *sizeRecorder) AddProducer() qlogwriter.Recorder { return r }
func (r *sizeRecorder) SupportsSchemas(string) bool      { return false }
func (r *sizeRecorder) Close() error                     { return nil }

func (r *sizeRecorder) RecordEvent(e qlogwriter.Event) {
	update, ok := e.(qlog.MTUUpdated)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size = max(r.size, update.Value)
	if update.Done && !r.end {
		r.end = true
		close(r.done)
	}
}

func (r *sizeRecorder) result() (size int, sized bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.end
}

// tcp connects and makes libp2p's handshake.
func (d *dialer) tcp(ctx context.Context, at netip.AddrPort, p peer.ID) outcome {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return outcome{finding: findingOf(err), err: err}
	}
	defer raw.Close()
	return d.upgrade(ctx, raw, p)
}

// web opens a WebSocket over TLS at a host and port, over the environment's proxy, and makes libp2p's handshake in it.
func (d *dialer) web(ctx context.Context, at string, p peer.ID, proxyFor func(string) (*url.URL, error)) outcome {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return outcome{finding: Failed, err: err}
	}
	kind := "dns"
	if ip, err := netip.ParseAddr(host); err == nil {
		if kind = "ip6"; ip.Is4() {
			kind = "ip4"
		}
	}
	a, err := ma.NewMultiaddr("/" + kind + "/" + host + "/tcp/" + port + "/tls/ws")
	if err != nil {
		return outcome{finding: Failed, err: err}
	}
	raw, err := (&tcp.Ports{ProxyFor: proxyFor}).ConnectWeb(ctx, a, nil)
	if err != nil {
		return outcome{finding: findingOf(err), err: err}
	}
	defer raw.Close()
	return d.upgrade(ctx, raw, p)
}

// upgrade makes libp2p's handshake on a connection: multistream-select, then TLS. The other end has accepted this end's
// certificate once it goes on with multistream-select.
func (d *dialer) upgrade(ctx context.Context, raw net.Conn, p peer.ID) outcome {
	end, _ := ctx.Deadline()
	if err := raw.SetDeadline(end); err != nil {
		return outcome{finding: Failed, err: err, connected: true}
	}
	conf, seen := d.tls(p)
	secure := tls.Client(raw, conf)
	err := selectTLS(raw)
	if err == nil {
		err = secure.HandshakeContext(ctx)
	}
	if err == nil {
		err = exchange(secure, multistream, multistream)
	}
	o := seen.outcome(err, time.Now())
	o.connected = true
	switch {
	case o.finding == Silent: // it was let through, and then it was not
		o.finding = Cut
	case errors.Is(err, errForeign):
		o.finding = Foreign
	}
	return o
}

// Messages of multistream-select, with their lengths in front.
const (
	multistream = "\x13/multistream/1.0.0\n"
	tlsProtocol = "\x0b/tls/1.0.0\n"
)

// errForeign says that something speaks that is no libp2p.
var errForeign = errors.New("not multistream-select")

func selectTLS(c net.Conn) error {
	if err := exchange(c, multistream+tlsProtocol, multistream); err != nil {
		return err
	}
	return exchange(c, "", tlsProtocol)
}

// exchange writes a text, and reads one that has to come.
func exchange(c io.ReadWriter, text, want string) error {
	if text != "" {
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
	}
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	if !bytes.HasPrefix([]byte(want), got[:n]) {
		return fmt.Errorf("%w: it says %q", errForeign, got[:n])
	}
	return err
}
