package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

// Stream is a reliable two-way stream to one peer. Close ends both directions and unblocks
// Read and Write, soon; Reset does it at once, without delivering what was written.
type Stream interface {
	io.ReadWriteCloser
	Reset() error
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Transport opens and accepts streams. It authenticates both ends and delivers admitted
// members only.
type Transport interface {
	Self() plan.PeerID
	Open(ctx context.Context, peer plan.PeerID) (Stream, error)
	// Handle has f serve each stream that comes, on a goroutine of its own. It closes the stream
	// after f.
	Handle(f func(from plan.PeerID, s Stream))
}

// The first byte of a stream says what it carries.
const (
	streamRaft    = 'r' // length (1 byte) and ID of the log's lineage, length (4 bytes) and JSON of vouchers, then raft's messages until it is closed
	streamFollow  = 'f' // length (1 byte) and ID of the log's lineage, a feed.Opening, and then the answer; where it is fed, raft's messages the other way
	streamRequest = 'q' // one request and its response
)

var errOtherLineage = errors.New("the run was recovered: the logs differ")

// streamLayer is the part of a Transport's streams that carries raft's messages. A server
// address is a peer ID.
type streamLayer struct {
	transport Transport
	lineage   string // of the log here
	// shows returns what is shown to a peer of who votes: encoded vouchers.
	shows  func() []byte
	timing *timing
	open   context.Context // ends when the layer is closed
	end    context.CancelFunc
	// mu guards conns, all open connections; nil when the layer is closed.
	mu    sync.Mutex
	conns map[*conn]struct{}
}

func newStreamLayer(t Transport, lineage string, shows func() []byte, timing *timing) *streamLayer {
	l := &streamLayer{transport: t, lineage: lineage, shows: shows, timing: timing, conns: map[*conn]struct{}{}}
	l.open, l.end = context.WithCancel(context.Background())
	return l
}

// Dial opens a stream to the peer whose ID the address is. It takes at least the time that streams to that peer took.
func (l *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	peer, began := plan.PeerID(address), time.Now()
	ctx, cancel := context.WithTimeout(l.open, max(timeout, l.timing.dialTimeout(peer)))
	defer cancel()
	s, err := l.transport.Open(ctx, peer)
	l.timing.dialed(peer, time.Since(began), err)
	if err != nil {
		return nil, fmt.Errorf("consensus: open stream to %s: %w", peer, err)
	}
	c, err := l.track(s, peer, nil)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	err = s.SetWriteDeadline(deadline)
	if err == nil {
		shown := l.shows()
		head := append([]byte{streamRaft, byte(len(l.lineage))}, l.lineage...)
		_, err = s.Write(append(binary.LittleEndian.AppendUint32(head, uint32(len(shown))), shown...))
	}
	if err == nil {
		err = s.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("consensus: open stream to %s: %w", peer, err)
	}
	return c, nil
}

// same reads of which lineage the log of a peer is that opens a stream of raft, and returns an error unless it is the one
// here.
func (l *streamLayer) same(r io.Reader) error {
	var size [1]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	if size[0] > lineageIDBytes {
		return fmt.Errorf("%w stream: a lineage of %d bytes", ErrMalformed, size[0])
	}
	theirs := make([]byte, size[0])
	if _, err := io.ReadFull(r, theirs); err != nil {
		return err
	}
	if string(theirs) != l.lineage {
		return fmt.Errorf("%w: it is of lineage %q, this node of %q", errOtherLineage, theirs, l.lineage)
	}
	return nil
}

// track remembers a stream so that closing the layer closes it. shown is nil for one on which this node sends raft's messages.
func (l *streamLayer) track(s Stream, peer plan.PeerID, shown *proof) (*conn, error) {
	c := &conn{Stream: s, layer: l, peer: peer, shown: shown}
	c.closed, c.end = context.WithCancel(l.open)
	l.mu.Lock()
	open := l.conns != nil
	if open {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if !open {
		s.Reset()
		return nil, net.ErrClosed
	}
	return c, nil
}

// prune closes the streams of peers whose messages are not taken any more.
func (l *streamLayer) prune(takes func(*conn) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.shown != nil && takes(c) != nil {
			c.Reset()
		}
	}
}

// Accept waits for the end of the layer: streams that come are served one by one.
func (l *streamLayer) Accept() (net.Conn, error) {
	<-l.open.Done()
	return nil, net.ErrClosed
}

// Close closes the layer and resets every stream of it: closing one in order waits for its peer, which may be dead.
func (l *streamLayer) Close() error {
	l.end()
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for c := range conns {
		c.Reset()
	}
	return nil
}

// Addr returns this node's peer ID.
func (l *streamLayer) Addr() net.Addr { return peerAddr(l.transport.Self()) }

// conn makes a stream the net.Conn that raft wants.
type conn struct {
	Stream
	layer *streamLayer
	peer  plan.PeerID
	// shown is what the peer has shown that sends raft's messages on the stream; nil where this node does.
	shown *proof
	// feeds is whether the peer brings the log of another one, the leader. heard is when it did last, in Unix nanoseconds, and busy whether raft
	// looks at what it brought.
	feeds  bool
	heard  atomic.Int64
	busy   atomic.Bool
	closed context.Context // ends when the stream is closed
	end    context.CancelFunc
}

func (c *conn) LocalAddr() net.Addr  { return c.layer.Addr() }
func (c *conn) RemoteAddr() net.Addr { return peerAddr(c.peer) }

// Close closes the stream and forgets it.
func (c *conn) Close() error {
	c.end()
	c.layer.mu.Lock()
	delete(c.layer.conns, c)
	c.layer.mu.Unlock()
	return c.Stream.Close()
}

// peerAddr is a peer ID as a network address.
type peerAddr plan.PeerID

func (peerAddr) Network() string  { return "pnode" }
func (a peerAddr) String() string { return string(a) }

// single is a stream layer of one stream, which came.
type single struct {
	*conn
	next chan *conn
}

func newSingle(c *conn) single {
	s := single{c, make(chan *conn, 1)}
	s.next <- c
	return s
}

// Accept returns the stream, and then waits for its end.
func (s single) Accept() (net.Conn, error) {
	select {
	case c := <-s.next:
		return c, nil
	case <-s.closed.Done():
		return nil, net.ErrClosed
	}
}

// Dial fails: nothing is sent by it.
func (single) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) { return nil, net.ErrClosed }

// Addr returns this node's peer ID.
func (s single) Addr() net.Addr { return s.LocalAddr() }
