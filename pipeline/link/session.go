package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Rules say what a plan lets the peers of its session send.
type Rules struct {
	// Expect returns an error for a message that one peer has no reason to send to another, or of more bytes than it can
	// have: one of wire's, since such a message follows no protocol. Nil: everything may come.
	Expect func(from, to plan.PeerID, tag wire.Tag, bytes int) error
	// Replaceable reports whether another peer may go on in a lost one's place (Substitute). Nil: none may.
	Replaceable func(plan.PeerID) bool
	// Coordinator is the peer whose commits end the steps; empty where nobody commits.
	Coordinator plan.PeerID
}

// Session carries the frames of one generation between this node and its peers.
type Session struct {
	endpoint   *Endpoint
	generation plan.Generation
	remotes    map[plan.PeerID]*remote // fixed
	order      []*remote               // the same, as they were given
	inbox      *inbox
	lost       chan plan.PeerID
	movement   movement
	rules      Rules
	stand      substitutes
	settled    atomic.Bool

	// open ends when closing begins, flush when queued frames have no more time.
	open, flush     context.Context
	endOpen, endAll context.CancelFunc
	work            errgroup.Group

	mu     sync.Mutex // guards closed, and work.Go against work.Wait
	closed bool
	done   chan struct{} // closed when Close is through
	unread error         // what Close gives; set before done is closed
}

func newSession(e *Endpoint, generation plan.Generation, peers []plan.PeerID, rules []Rules) *Session {
	s := &Session{
		endpoint: e, generation: generation, remotes: map[plan.PeerID]*remote{}, done: make(chan struct{}),
		inbox: &inbox{
			most: load{e.opt.InboxFrames, e.opt.InboxBytes}, loads: map[account]load{}, gone: map[plan.PeerID]error{},
			admitted: map[key]admission{}, held: map[key][]byte{}, waiting: map[key]chan received{}, received: map[key]bool{}, others: map[key]plan.PeerID{},
			replaced: map[plan.PeerID]bool{}, commits: map[plan.PeerID]wire.Frame{},
		},
	}
	s.rules = Rules{Expect: func(_, _ plan.PeerID, _ wire.Tag, _ int) error { return nil }}
	for _, r := range rules {
		s.rules = r
	}
	s.flush, s.endAll = context.WithCancel(context.Background())
	s.open, s.endOpen = context.WithCancel(s.flush)
	for _, id := range peers {
		if id != s.self() && s.remotes[id] == nil {
			s.remotes[id] = newRemote(s, id)
			s.order = append(s.order, s.remotes[id])
		}
	}
	s.lost = make(chan plan.PeerID, len(s.remotes))
	return s
}

// Settled notes that the generation has made a step: from now on chunks give way to messages. Before, a peer may wait for
// chunks of the state that it begins with, and every message waits for that peer.
func (s *Session) Settled() { s.settled.Store(true) }

// spawn runs f in a goroutine that Close waits for; after Close has begun it does not.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.also(f)
	return true
}

// also runs f in a goroutine that Close waits for. After Close has begun only goroutines may
// call it that Close waits for.
func (s *Session) also(f func()) {
	s.work.Go(func() error {
		f()
		return nil
	})
}

// adopt takes an incoming stream of this generation, or refuses it with the reason.
func (s *Session) adopt(p incoming) {
	r := s.remotes[p.from]
	switch {
	case r == nil:
		s.endpoint.counts.strangers.Add(1)
		cut(p.stream, streamRefused)
	case !r.meet(p.open.From) || !s.spawn(func() { r.read(p) }):
		cut(p.stream, streamLeft)
	}
}

func (s *Session) self() plan.PeerID { return s.endpoint.net.Self() }

func (s *Session) alive() bool { return s != nil && s.open.Err() == nil }

// closing reports whether Close has begun but may still send what was queued.
func (s *Session) closing() bool {
	if s == nil || s.alive() {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Send queues a frame for a peer and returns. It waits only while the outbox of the peer and class is
// full of what the peer has not acknowledged, and while connections are being warmed (Warm). Nobody
// may change the payload afterwards: a frame to this node itself is received as the very same bytes,
// and waits for room in its inbox. Errors wrap ErrLost, ErrLeft or ErrClosed, all of them
// net.ErrClosed; ErrStranger, ErrGeneration, ErrTooLarge, or the context's.
func (s *Session) Send(ctx context.Context, to plan.PeerID, f wire.Frame) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("link: send %v to %s: %w", f.Tag, to, err)
		}
	}()
	if err := f.Tag.Validate(); err != nil {
		return err
	}
	if f.Tag.Generation != s.generation {
		return fmt.Errorf("%w: the session has %d", ErrGeneration, s.generation)
	}
	if len(f.Payload) > s.endpoint.opt.MaxTensorBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(f.Payload), s.endpoint.opt.MaxTensorBytes)
	}
	s.movement.at(f.Tag.Step)
	return s.retry(ctx, to, func(by plan.PeerID) error {
		if by == s.self() {
			err := s.keep(ctx, by, f)
			if by != to && errors.Is(err, ErrDuplicate) {
				return nil // it was among what was sent again
			}
			return err
		}
		r, err := s.ready(ctx, by, f.Tag.Kind)
		if err != nil {
			return err
		}
		return r.outboxes[f.Tag.Kind.Class()].put(ctx, f)
	})
}

// keep takes a frame in that a worker here sends to another one, in the name of its peer.
func (s *Session) keep(ctx context.Context, from plan.PeerID, f wire.Frame) error {
	k, a := key{from: from, tag: f.Tag}, admission{by: s.self(), size: len(f.Payload)}
	if err := s.inbox.admit(ctx, k, a); err != nil {
		return err
	}
	s.inbox.deliver(k, s.self(), f.Payload)
	return nil
}

// ready returns a peer once its connections are warm, which control frames do not wait for.
func (s *Session) ready(ctx context.Context, peer plan.PeerID, kind wire.Kind) (*remote, error) {
	r := s.remotes[peer]
	if r == nil {
		return nil, ErrStranger
	}
	if !kind.Numbered() {
		return nil, fmt.Errorf("%w: %v is the session's own", wire.ErrKind, kind)
	}
	if kind.Class() != wire.Control && r.warmUp.asked.was() {
		select {
		case <-r.warmUp.over.given:
		case <-r.ctx.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r, nil
}

// Receive blocks until the message with this tag from a peer, which may be this node itself, is
// complete. Each message comes out once, and has one waiter: others get ErrDuplicate. Errors wrap the
// same as Send's. A message that came before its sender was lost or has left is still received.
func (s *Session) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) (payload []byte, err error) {
	switch {
	case tag.Generation != s.generation:
		err = fmt.Errorf("%w: the session has %d", ErrGeneration, s.generation)
	case s.remotes[from] == nil && from != s.self():
		err = ErrStranger
	default:
		err = s.retry(ctx, from, func(plan.PeerID) error {
			payload, err = s.inbox.receive(ctx, key{from: from, tag: tag})
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("link: receive %v from %s: %w", tag, from, err)
	}
	return payload, nil
}

// Lost returns the channel in which each lost peer appears once: unreachable or silent for PeerTimeout,
// closed, started again, or nobody listens at its address any more. A peer is in the channel before
// any call fails with ErrLost. The channel holds all of them and is never closed.
func (s *Session) Lost() <-chan plan.PeerID { return s.lost }

// Fault returns what a lost peer sent that cannot be read or that nobody expects, nil where it is lost for another
// reason.
func (s *Session) Fault(peer plan.PeerID) *plan.Fault {
	var fault *plan.Fault
	errors.As(s.remotes[peer].reason(), &fault)
	return fault
}

// Silence returns for how long nothing has come from a peer, 0 of one that the session does not have.
func (s *Session) Silence(peer plan.PeerID) time.Duration {
	if r := s.remotes[peer]; r != nil {
		return time.Duration(r.silence.Load())
	}
	return 0
}

// Ended reports whether a peer is lost since its process has ended.
func (s *Session) Ended(peer plan.PeerID) bool {
	return errors.Is(s.remotes[peer].reason(), errRefused)
}

// Drop gives up a peer before links notice, for ErrGone or ErrGaveUp: no call waits for it any more, nor for a substitute.
func (s *Session) Drop(peer plan.PeerID, why error) {
	s.stand.giveUp(peer)
	if r := s.remotes[peer]; r != nil {
		r.lose(why)
	}
}

// Flush blocks until the peers have read all that was sent; those that are lost or have left read nothing more.
// It gives up when ctx ends, or when a peer has acknowledged nothing for Options.PeerTimeout.
func (s *Session) Flush(ctx context.Context) error {
	var failed error
	for _, r := range s.order {
		for _, o := range r.outboxes {
			if err := o.flush(ctx, s.endpoint.opt.PeerTimeout); err != nil {
				failed = errors.Join(failed, fmt.Errorf("link: flush generation %d: %s has not acknowledged %d messages: %w",
					s.generation, r.id, r.unread(), err))
				break
			}
		}
	}
	return failed
}

// Close fails every call, present and later, with an error that wraps net.ErrClosed. It gives the peers
// at most CloseTimeout to read what is queued, over connections that are made for it where there is
// none, ends the streams and waits for the session's goroutines. Connections stay. The error names
// each peer that is neither lost nor has left and did not read all in time, and how many messages it
// has not acknowledged; later calls return the same.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return s.unread
	}
	s.closed = true
	s.mu.Unlock()
	s.inbox.close(ErrClosed)
	s.stand.close()
	for _, r := range s.order {
		for _, o := range r.outboxes {
			o.drain(ErrClosed)
		}
	}
	s.endOpen()
	timer := time.AfterFunc(s.endpoint.opt.CloseTimeout, s.endAll)
	s.work.Wait()
	timer.Stop()
	s.endAll()
	for _, r := range s.order {
		if n := r.unread(); n > 0 {
			s.endpoint.log.Info("closed with messages unread", "peer", r.id, "generation", s.generation, "messages", n)
			s.unread = errors.Join(s.unread, fmt.Errorf("link: close generation %d: %s has not acknowledged %d messages",
				s.generation, r.id, n))
		}
	}
	close(s.done)
	return s.unread
}
