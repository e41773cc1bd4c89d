package consensus

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pnode/planner/plan"
)

// memoryNet joins memoryTransports with streams of a fixed one-way delay that can be cut.
type memoryNet struct {
	delay time.Duration
	// far peers have a longer delay, by so much.
	far map[plan.PeerID]time.Duration
	// opening is how long a stream takes to open.
	opening func() time.Duration
	sent    atomic.Int64 // writes to streams
	mu      sync.Mutex
	nodes   map[plan.PeerID]*memoryTransport
	side    map[plan.PeerID]int // peers on different sides do not hear each other
	heal    chan struct{}       // closed and replaced when sides change
}

func newMemoryNet(delay time.Duration) *memoryNet {
	return &memoryNet{
		delay: delay, opening: func() time.Duration { return 0 }, nodes: map[plan.PeerID]*memoryTransport{},
		side: map[plan.PeerID]int{}, heal: make(chan struct{}),
	}
}

// partition puts peers on side 1 and everybody else on side 0.
func (n *memoryNet) partition(peers ...plan.PeerID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.side)
	for _, p := range peers {
		n.side[p] = 1
	}
	close(n.heal)
	n.heal = make(chan struct{})
}

// cut reports whether a and b hear each other, and returns a channel closed when that may
// have changed.
func (n *memoryNet) cut(a, b plan.PeerID) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.side[a] != n.side[b], n.heal
}

// peers returns who is there.
func (n *memoryNet) peers() []plan.PeerID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.nodes))
}

// join gives a transport for peer, in place of an earlier one.
func (n *memoryNet) join(peer plan.PeerID) *memoryTransport {
	t := &memoryTransport{
		net: n, self: peer, incoming: make(chan *memoryStream, 64),
		closed: make(chan struct{}), streams: map[*memoryStream]struct{}{},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[peer] = t
	return t
}

type memoryTransport struct {
	net      *memoryNet
	self     plan.PeerID
	incoming chan *memoryStream
	closed   chan struct{}
	sent     atomic.Int64 // writes to streams
	mu       sync.Mutex
	streams  map[*memoryStream]struct{}
}

func (t *memoryTransport) Self() plan.PeerID { return t.self }

func (t *memoryTransport) Open(ctx context.Context, peer plan.PeerID) (Stream, error) {
	for {
		cut, heal := t.net.cut(t.self, peer)
		if !cut {
			break
		}
		select {
		case <-heal:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case <-time.After(t.net.opening()):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.net.mu.Lock()
	remote := t.net.nodes[peer]
	t.net.mu.Unlock()
	if remote == nil {
		return nil, fmt.Errorf("no route to %s", peer)
	}
	there, back := newHalf(), newHalf()
	mine := &memoryStream{transport: t, peer: peer, in: back, out: there}
	theirs := &memoryStream{transport: remote, peer: t.self, in: there, out: back}
	t.add(mine)
	remote.add(theirs)
	select {
	case remote.incoming <- theirs:
		return mine, nil
	case <-remote.closed:
		mine.Close()
		return nil, fmt.Errorf("%s is away", peer)
	case <-ctx.Done():
		mine.Close()
		return nil, ctx.Err()
	}
}

func (t *memoryTransport) Handle(f func(plan.PeerID, Stream)) {
	go func() {
		for {
			select {
			case s := <-t.incoming:
				go func() {
					defer s.Close()
					f(s.peer, s)
				}()
			case <-t.closed:
				return
			}
		}
	}()
}

func (t *memoryTransport) add(s *memoryStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams[s] = struct{}{}
}

// crash closes every stream and accepts none again, as the end of a process does.
func (t *memoryTransport) crash() {
	t.net.mu.Lock()
	if t.net.nodes[t.self] == t {
		delete(t.net.nodes, t.self)
	}
	t.net.mu.Unlock()
	close(t.closed)
	t.mu.Lock()
	streams := slices.Collect(maps.Keys(t.streams))
	t.mu.Unlock()
	for _, s := range streams {
		s.Close()
	}
}

// half is one direction of a stream: segments with the time at which they arrive, and
// whether its writer or its reader has closed it.
type half struct {
	segments  chan segment
	eof, gone *event
}

type segment struct {
	at   time.Time
	data []byte
}

func newHalf() *half {
	return &half{segments: make(chan segment, 256), eof: newEvent(), gone: newEvent()}
}

// event happens once.
type event struct {
	once sync.Once
	c    chan struct{}
}

func newEvent() *event   { return &event{c: make(chan struct{})} }
func (e *event) happen() { e.once.Do(func() { close(e.c) }) }

type memoryStream struct {
	transport *memoryTransport
	peer      plan.PeerID
	in, out   *half
	pending   []byte // arrived and not read

	mu          sync.Mutex
	read, write time.Time // deadlines
}

// expiry gives a channel that fires at a deadline, and what to stop afterwards.
func expiry(t time.Time) (<-chan time.Time, func() bool) {
	if t.IsZero() {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(t))
	return timer.C, timer.Stop
}

func (s *memoryStream) Read(b []byte) (int, error) {
	s.mu.Lock()
	expired, stop := expiry(s.read)
	s.mu.Unlock()
	defer stop()
	if len(s.pending) == 0 {
		var next segment
		select {
		case next = <-s.in.segments:
		default:
			select {
			case next = <-s.in.segments:
			case <-s.in.eof.c:
				select {
				case next = <-s.in.segments:
				default:
					return 0, io.EOF
				}
			case <-s.in.gone.c:
				return 0, net.ErrClosed
			case <-expired:
				return 0, os.ErrDeadlineExceeded
			}
		}
		if err := s.arrive(next, expired); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// arrive waits for a segment's delay and for the cut between the ends to heal.
func (s *memoryStream) arrive(next segment, expired <-chan time.Time) error {
	delay, stop := expiry(next.at)
	defer stop()
	select {
	case <-delay:
	case <-s.in.gone.c:
		return net.ErrClosed
	case <-expired:
		return os.ErrDeadlineExceeded
	}
	for {
		cut, heal := s.transport.net.cut(s.transport.self, s.peer)
		if !cut {
			s.pending = next.data
			return nil
		}
		select {
		case <-heal:
		case <-s.in.gone.c:
			return net.ErrClosed
		case <-expired:
			return os.ErrDeadlineExceeded
		}
	}
}

func (s *memoryStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	expired, stop := expiry(s.write)
	s.mu.Unlock()
	defer stop()
	select {
	case <-s.out.eof.c:
		return 0, net.ErrClosed
	default:
	}
	s.transport.net.sent.Add(1)
	s.transport.sent.Add(1)
	select {
	case s.out.segments <- segment{time.Now().Add(s.transport.net.delay + s.transport.net.far[s.peer] + s.transport.net.far[s.transport.self]), slices.Clone(b)}:
		return len(b), nil
	case <-s.out.gone.c:
		return 0, io.ErrClosedPipe
	case <-s.out.eof.c:
		return 0, net.ErrClosed
	case <-expired:
		return 0, os.ErrDeadlineExceeded
	}
}

func (s *memoryStream) Reset() error { return s.Close() }

func (s *memoryStream) Close() error {
	s.in.gone.happen()
	s.out.eof.happen()
	s.transport.mu.Lock()
	delete(s.transport.streams, s)
	s.transport.mu.Unlock()
	return nil
}

func (s *memoryStream) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.write = t, t
	return nil
}

func (s *memoryStream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = t
	return nil
}

func (s *memoryStream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write = t
	return nil
}
