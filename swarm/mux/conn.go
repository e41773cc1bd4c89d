package mux

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
	"pnode/swarm/transport"
)

const (
	streamWindow    = 3 << 20
	connWindow      = 10 << 20
	maxStreamWindow = 32 << 20
	maxConnWindow   = 104 << 20
	// maxStreams bounds the streams that one end has opened and that have not ended.
	maxStreams = 256
	// idleTime is how long nothing may come before the connection ends.
	idleTime = 10 * time.Second
	// farewellTime bounds how long Close waits until the socket has taken CLOSE, lingerTime how long the socket stays
	// open for it.
	farewellTime = 100 * time.Millisecond
	lingerTime   = 2 * time.Second
	// refuseTime and refuseBytes bound what Refuse spends on a peer.
	refuseTime   = time.Second
	refuseBytes  = 64 << 10
	urgencies    = 8
	urgencyFirst = 3 // of a stream whose urgency nobody has set, as in RFC 9218
)

// Config describes a connection.
type Config struct {
	// Dialer says that this end has dialed; exactly one of the two ends has.
	Dialer bool
	// Transport is what carries the stream of bytes. Empty is TCP.
	Transport plan.Transport
	// RemoteAddr is where the peer is; nil is the net.Conn's.
	RemoteAddr net.Addr
	// FixedWindows keeps this end's receive windows as they are at first.
	FixedWindows bool
}

// Conn is a connection whose streams share one net.Conn.
type Conn struct {
	conn   net.Conn
	base   net.Conn // innermost; closing it ends all calls of conn at once
	cfg    Config
	socket *socket // nil where no socket of TCP is directly below
	begun  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   *time.Timer
	linger *time.Timer
	wake   chan struct{} // capacity 1: the writer has something to do
	said   chan struct{} // closed when the writer has ended
	done   chan struct{} // closed when both goroutines have ended

	// Bytes of conn, and when the newest came, in nanoseconds since begun.
	sent, received, heard atomic.Uint64

	mu       sync.Mutex // guards the rest, and what streams say that it does
	err      error
	farewell []byte // the frame that is written last
	news     chan struct{}
	streams  map[uint32]*stream // those that the line knows and that have not ended
	nextOut  uint32
	nextIn   uint32
	outgoing int // streams of this end that have not ended
	incoming int
	accepts  []*stream

	in       window
	inDue    bool
	outSent  uint64 // bytes of DATA
	outLimit uint64
	control  []*stream            // those that have a RESET, STOP or WINDOW to send
	ready    [urgencies][]*stream // those that have DATA or END to send, in turn
	pings    pings
}

// New begins a connection over conn, which belongs to it from now on.
func New(conn net.Conn, cfg Config) *Conn {
	c := newConn(conn, cfg)
	c.idle = time.AfterFunc(idleTime, c.checkIdle)
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.readLoop()
	}()
	go func() {
		c.writeLoop()
		close(c.said)
		<-read
		c.idle.Stop()
		c.mu.Lock()
		c.linger.Stop()
		c.mu.Unlock()
		c.base.Close()
		c.conn.Close()
		close(c.done)
	}()
	return c
}

// newConn makes a connection without goroutines.
func newConn(conn net.Conn, cfg Config) *Conn {
	cfg.Transport = cmp.Or(cfg.Transport, plan.TCP)
	c := &Conn{
		conn: conn, base: innermost(conn), cfg: cfg, socket: socketOf(conn), begun: time.Now(),
		wake: make(chan struct{}, 1), said: make(chan struct{}), done: make(chan struct{}),
		news: make(chan struct{}), streams: map[uint32]*stream{}, nextOut: 2, nextIn: 1,
		in: newWindow(connWindow, maxConnWindow), outLimit: connWindow,
	}
	if cfg.Dialer {
		c.nextOut, c.nextIn = 1, 2
	}
	if cfg.FixedWindows {
		c.in.max = connWindow
	}
	// A proxy or a relay may hold far more than the socket to it.
	c.pings.bounded = c.socket == nil || !c.socket.bounded || cfg.Transport != plan.TCP
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// innermost returns the connection that carries what conn carries, through as many layers as say which one it is.
func innermost(conn net.Conn) net.Conn {
	for {
		layer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = layer.NetConn()
	}
}

// OpenStream implements transport.Conn.
func (c *Conn) OpenStream(ctx context.Context) (transport.Stream, error) {
	s := newStream(c, true)
	err := c.await(ctx, func() bool {
		if c.outgoing >= maxStreams {
			return false
		}
		c.outgoing++
		c.stir() // it is time for pings
		return true
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// AcceptStream implements transport.Conn.
func (c *Conn) AcceptStream(ctx context.Context) (transport.Stream, error) {
	var s *stream
	err := c.await(ctx, func() bool {
		if len(c.accepts) == 0 {
			return false
		}
		s = c.accepts[0]
		s.accepted = true
		c.accepts = c.accepts[1:]
		return true
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// await blocks until try, called with mu held, returns true.
func (c *Conn) await(ctx context.Context, try func() bool) error {
	for {
		c.mu.Lock()
		if c.err != nil {
			defer c.mu.Unlock()
			return c.err
		}
		if err := ctx.Err(); err != nil {
			c.mu.Unlock()
			return err
		}
		if try() {
			c.mu.Unlock()
			return nil
		}
		news := c.news
		c.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
	}
}

// announce wakes await. Callers hold mu.
func (c *Conn) announce() {
	close(c.news)
	c.news = make(chan struct{})
}

// stir wakes the writer.
func (c *Conn) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Context implements transport.Conn.
func (c *Conn) Context() context.Context { return c.ctx }

// Done is closed when the connection's goroutines have ended and its socket is closed, soon after Context's end.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err implements transport.Conn.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// LocalAddr returns this end's address, below all layers.
func (c *Conn) LocalAddr() net.Addr { return c.base.LocalAddr() }

// Break ends the connection for a reason that this end knows, without a word to the peer, as if the line had broken.
func (c *Conn) Break(reason string) { c.end(&brokenError{kind: neterr.KindCut, reason: reason}, nil) }

// RemoteAddr implements transport.Conn.
func (c *Conn) RemoteAddr() net.Addr {
	if c.cfg.RemoteAddr != nil {
		return c.cfg.RemoteAddr
	}
	return c.conn.RemoteAddr()
}

// Transport implements transport.Conn.
func (c *Conn) Transport() plan.Transport { return c.cfg.Transport }

// Close implements transport.Conn. The reason is cut at 1 KiB. It returns when the socket has taken code and reason,
// after 0.1 s at the latest; the socket closes when the peer has, or after 2 s.
func (c *Conn) Close(code transport.Code, reason string) {
	c.end(&transport.ConnError{Code: code, Reason: reason}, closeFrame(code, reason))
	bound := time.NewTimer(farewellTime)
	defer bound.Stop()
	select {
	case <-c.said:
	case <-bound.C:
	}
}

// Refuse tells the dialer at the other end of conn, which was given to New there, that there is no connection, and why. It
// closes conn, at the latest after a second or when ctx ends: it makes no connection, and forgets what it reads.
func Refuse(ctx context.Context, conn net.Conn, code transport.Code, reason string) {
	base := innermost(conn)
	defer conn.Close()
	defer base.Close()
	defer context.AfterFunc(ctx, func() { base.Close() })()
	_ = conn.SetDeadline(time.Now().Add(refuseTime)) // where there are none, ctx ends it
	if _, err := conn.Write(append([]byte(preface), closeFrame(code, reason)...)); err != nil {
		return
	}
	// A kernel that closes a socket with unread bytes drops what it has not sent.
	_, _ = io.CopyN(io.Discard, conn, refuseBytes)
}

func closeFrame(code transport.Code, reason string) []byte {
	reason = cutReason(reason)
	b := appendHeader(nil, header{kind: kindClose, length: codeBytes + len(reason)})
	return append(binary.BigEndian.AppendUint64(b, uint64(code)), reason...)
}

func faultFrame(reason string) []byte {
	reason = cutReason(reason)
	return append(appendHeader(nil, header{kind: kindFault, length: len(reason)}), reason...)
}

func cutReason(reason string) string {
	if len(reason) > transport.MaxReason {
		reason = strings.ToValidUTF8(reason[:transport.MaxReason], "")
	}
	return reason
}

// end ends the connection, if it has not ended: all calls fail with err. The writer sends farewell, if there is one,
// and the socket stays open for it for a while.
func (c *Conn) end(err error, farewell []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(err, farewell)
}

// finish does what end does. Callers hold mu.
func (c *Conn) finish(err error, farewell []byte) {
	if c.err != nil {
		return
	}
	c.err, c.farewell = err, farewell
	c.accepts, c.control, c.ready = nil, nil, [urgencies][]*stream{}
	for _, s := range c.streams {
		s.buffer.drop()
	}
	c.cancel(err)
	c.stir()
	var stays time.Duration
	if farewell != nil {
		stays = lingerTime
	}
	c.linger = time.AfterFunc(stays, func() { c.base.Close() })
}

// brokenError says that a connection has ended though no end has closed it.
type brokenError struct {
	kind   neterr.Kind
	reason string
	// log has the words of the net.Conn's error, for the log alone; empty without one.
	log string
}

func (e *brokenError) Error() string { return "mux: " + e.reason }

// LogValue implements slog.LogValuer.
func (e *brokenError) LogValue() slog.Value {
	if e.log == "" {
		return slog.StringValue(e.Error())
	}
	return slog.StringValue(e.Error() + ": " + e.log)
}

// Unwrap returns net.ErrClosed. The cause is told in words only: to who reads a stream, io.EOF means the stream's end.
func (e *brokenError) Unwrap() error { return net.ErrClosed }

// Kind tells package neterr why the connection ended.
func (e *brokenError) Kind() neterr.Kind { return e.kind }

// broken ends the connection because of an error of the net.Conn.
func (c *Conn) broken(err error) {
	c.end(&brokenError{neterr.KindOf(err), "the connection " + neterr.Verb(err), err.Error()}, nil)
}

// checkIdle ends the connection if nothing has come for idleTime.
func (c *Conn) checkIdle() {
	silent := time.Since(c.begun) - time.Duration(c.heard.Load())
	if silent < idleTime {
		c.idle.Reset(idleTime - silent)
		return
	}
	reason := fmt.Sprintf("nothing came for %v", idleTime)
	c.end(&brokenError{kind: neterr.KindSilent, reason: reason}, faultFrame(reason))
}

// Stats implements transport.Conn.
func (c *Conn) Stats() transport.Stats {
	s := c.pings.stats()
	s.BytesSent, s.BytesReceived = c.sent.Load(), c.received.Load()
	return s
}
