package memory

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

const (
	streamWindow = 3 << 20
	// maxStreams bounds the streams that one end has opened and that have not ended.
	maxStreams = 256
	// pieceBytes bounds what has its turn on a line at once, and what a stream takes over from Write before that.
	pieceBytes = 16 << 10
	// overheadBytes is what a piece has beside its bytes, ackBytes what its acknowledgement has.
	overheadBytes, ackBytes = 60, 40
	// window bounds what is under way without an acknowledgement, in bytes.
	window = 512 << 10
	// heardEvery is how often an end sends something in any case, idleTime how long one waits for the other.
	heardEvery, idleTime = 5 * time.Second, 30 * time.Second
	// leastPause and mostPause bound how long after a loss the next try is.
	leastPause, mostPause = 50 * time.Millisecond, 10 * time.Second
	urgencies             = 8
	urgencyFirst          = 3 // of a stream whose urgency nobody has set, as in RFC 9218
)

// End says who has one end of a connection.
type End struct {
	Addr net.Addr
	// Out leads from this end to the other.
	Out Path
}

// Conn is one end of a connection. Its methods may be called from any goroutine.
type Conn struct {
	addr, remote net.Addr
	out          Path
	peer         *Conn
	ctx          context.Context
	cancel       context.CancelFunc
	accepted     chan struct{} // capacity 1: some streams wait for AcceptStream
	room         chan struct{} // capacity 1: some stream may be opened

	mu      *sync.Mutex // both ends', guards the rest
	err     error
	opened  int // streams of this end that have not ended
	accepts []*Stream
	stats   transport.Stats
	heard   time.Time
	told    bool // the peer learns that this end has closed

	// sending
	control []piece              // goes first
	ready   [urgencies][]*Stream // those that have bytes or an end to send, in turn
	free    time.Time            // when the line takes the next piece
	pause   time.Duration        // after a loss; 0 where nothing was lost
	unacked uint64               // bytes whose acknowledgements were lost
	pump    *time.Timer          // nil while nothing waits for its turn
	flight  []piece              // on the way, the next one first
	landing *time.Timer          // nil while nothing is on the way
	keeper  *time.Timer          // nil on the end that the other one's serves
}

// Pair joins two ends. The second is the one that was dialed.
func Pair(a, b End) (dialer, acceptor *Conn) {
	mu := &sync.Mutex{}
	dialer, acceptor = newEnd(mu, a, b), newEnd(mu, b, a)
	dialer.peer, acceptor.peer = acceptor, dialer
	mu.Lock()
	defer mu.Unlock()
	dialer.keeper = time.AfterFunc(heardEvery, dialer.keep)
	return dialer, acceptor
}

func newEnd(mu *sync.Mutex, at, other End) *Conn {
	c := &Conn{
		addr: at.Addr, remote: other.Addr, out: at.Out, mu: mu, heard: time.Now(),
		accepted: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	trip := at.Out.Latency() + other.Out.Latency()
	c.stats = transport.Stats{MinRTT: trip, LatestRTT: trip, SmoothedRTT: trip, MeanDeviation: trip / 2, CongestionWindow: window}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// OpenStream implements transport.Conn.
func (c *Conn) OpenStream(ctx context.Context) (transport.Stream, error) {
	for {
		c.mu.Lock()
		err, opens := c.err, c.opened < maxStreams
		if err == nil && opens {
			c.opened++
			if c.opened < maxStreams {
				signal(c.room) // for the next one that waits
			}
			c.mu.Unlock()
			return newStream(c), nil
		}
		c.mu.Unlock()
		if err := c.await(ctx, err, c.room); err != nil {
			return nil, err
		}
	}
}

// AcceptStream implements transport.Conn.
func (c *Conn) AcceptStream(ctx context.Context) (transport.Stream, error) {
	for {
		c.mu.Lock()
		err := c.err
		if err == nil && len(c.accepts) > 0 {
			s := c.accepts[0]
			c.accepts = c.accepts[1:]
			if len(c.accepts) > 0 {
				signal(c.accepted)
			}
			c.mu.Unlock()
			return s, nil
		}
		c.mu.Unlock()
		if err := c.await(ctx, err, c.accepted); err != nil {
			return nil, err
		}
	}
}

// await blocks until a channel says that something has changed, unless the connection has ended with err.
func (c *Conn) await(ctx context.Context, err error, changed <-chan struct{}) error {
	if err != nil {
		return err
	}
	select {
	case <-changed:
		return nil
	case <-c.ctx.Done():
		return nil // which the next look finds
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Context implements transport.Conn.
func (c *Conn) Context() context.Context { return c.ctx }

// Err implements transport.Conn.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Conn. The peer learns of it if the path is open.
func (c *Conn) Close(code transport.Code, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	reason = plan.Clip(reason, transport.MaxReason)
	c.finish(&transport.ConnError{Code: code, Reason: reason})
	c.told = c.out.Open()
	c.tell(&transport.ConnError{Remote: true, Code: code, Reason: reason})
}

// tell has the peer end with an error once it hears of it, if it does. Callers hold mu.
func (c *Conn) tell(err error) {
	if !c.out.Open() {
		return
	}
	time.AfterFunc(c.out.Latency(), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.peer.finish(err)
	})
}

// finish ends this end. Callers hold mu.
func (c *Conn) finish(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.cancel()
	c.accepts, c.control, c.ready = nil, nil, [urgencies][]*Stream{}
	if c.pump != nil {
		c.pump.Stop()
	}
	if c.peer.err != nil {
		for _, end := range []*Conn{c, c.peer} {
			end.flight = nil
			for _, timer := range []*time.Timer{end.keeper, end.landing} {
				if timer != nil {
					timer.Stop()
				}
			}
		}
	}
}

// keep has both ends hear from each other, and ends one that has heard nothing for long.
func (c *Conn) keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, end := range []*Conn{c, c.peer} {
		if end.err == nil && end.out.Open() {
			end.reach(now)
		}
	}
	for _, end := range []*Conn{c, c.peer} {
		if now.Sub(end.heard) >= idleTime {
			end.finish(&quic.IdleTimeoutError{})
		}
	}
	if c.err == nil || c.peer.err == nil {
		c.keeper.Reset(heardEvery)
	}
}

// errForgotten ends an end whose peer has lost its memory of the connection.
var errForgotten error = &quic.StatelessResetError{}

// reach is called when something of this end arrives. It reports whether the peer is there to take it. Callers hold mu.
func (c *Conn) reach(now time.Time) bool {
	if c.peer.err == nil {
		c.peer.heard = now
		return true
	}
	if c.err == nil && !c.peer.told {
		c.peer.tell(errForgotten)
	}
	return false
}

// Stats implements transport.Conn.
func (c *Conn) Stats() transport.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// RemoteAddr implements transport.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr returns where this end is.
func (c *Conn) LocalAddr() net.Addr { return c.addr }

// Transport implements transport.Conn.
func (c *Conn) Transport() plan.Transport { return plan.QUIC }

func signal(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
