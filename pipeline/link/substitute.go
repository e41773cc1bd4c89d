package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// substitutes says who goes on in the place of lost peers. The zero value knows of none.
type substitutes struct {
	mu       sync.Mutex // guards the rest
	of       map[plan.PeerID]substitute
	hopeless map[plan.PeerID]bool // nobody comes for these
	away     map[plan.PeerID]bool // lost, or have left
	closed   bool
	changed  broadcast
}

// substitute is who does a lost peer's part, of which it needs nothing up to a step.
type substitute struct {
	by    plan.PeerID
	after plan.Step
}

// wordPatience bounds the wait for the word that a peer stands in for another one, from when it sends in that one's name.
const wordPatience = 10 * time.Second

// errNoWord is why a peer is lost that sent in another one's name, and no word came that it may. This node's log may lag, so that it is no fault.
var errNoWord = errors.New("link: it sends in the place of another peer, and no word of that has come")

// giveUp notes that nobody goes on in a peer's place.
func (u *substitutes) giveUp(peer plan.PeerID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	mark(&u.hopeless, peer)
	u.changed.wake()
}

func (u *substitutes) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	u.changed.wake()
}

// await blocks until a lost peer has a substitute, or will have none.
func (u *substitutes) await(ctx context.Context, lost plan.PeerID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for {
		if u.closed || u.hopeless[lost] {
			return false
		}
		if u.replaced(lost) {
			return true
		}
		if u.changed.await(ctx, &u.mu) != nil {
			return false
		}
	}
}

// miss notes that a peer is lost or has left, and returns whose parts it did: nobody comes for those in whose place it was.
func (u *substitutes) miss(peer plan.PeerID) []plan.PeerID {
	u.mu.Lock()
	defer u.mu.Unlock()
	mark(&u.away, peer)
	parts := u.carries(peer)
	for _, lost := range parts {
		if lost != peer {
			mark(&u.hopeless, lost)
		}
	}
	u.changed.wake()
	return parts
}

func mark(set *map[plan.PeerID]bool, peer plan.PeerID) {
	if *set == nil {
		*set = map[plan.PeerID]bool{}
	}
	(*set)[peer] = true
}

// carrier returns who does a peer's part.
func (u *substitutes) carrier(peer plan.PeerID) plan.PeerID {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s, ok := u.of[peer]; ok {
		return s.by
	}
	return peer
}

// carries returns whose parts a peer does: its own first. Callers hold mu.
func (u *substitutes) carries(peer plan.PeerID) (all []plan.PeerID) {
	if !u.replaced(peer) {
		all = append(all, peer)
	}
	for lost, s := range u.of {
		if s.by == peer {
			all = append(all, lost)
		}
	}
	return all
}

// replaced reports whether somebody else does a peer's part. Callers hold mu.
func (u *substitutes) replaced(peer plan.PeerID) bool {
	_, ok := u.of[peer]
	return ok
}

// Substitute has another peer, which may be this node, go on in the place of one that is lost, or is lost with this call.
// What is sent to the lost one goes to it from now on, and what it sends in that one's name counts as that one's, unless
// the same message came before. resend returns what the lost one got and the substitute needs, which goes first. It is called once
// sends to the lost one wait, so that all that went to it can be there. Of messages for the lost one, the substitute drops those of
// steps up to after. A lost coordinator may have begun a step after a commit that nobody has. The substitute may make another one,
// and sends that step's messages again. So those are dropped that came here before their commit. Errors wrap ErrLost: somebody
// has given the lost peer up, or the substitute is lost too; others are resend's.
func (s *Session) Substitute(lost, by plan.PeerID, after plan.Step, resend func() ([]wire.Frame, error)) error {
	r := s.remotes[lost]
	if r == nil || lost == by || by != s.self() && s.remotes[by] == nil {
		return ErrStranger
	}
	r.lose(fmt.Errorf("%s goes on in its place", by))
	frames, err := resend()
	if err != nil {
		return err
	}
	u := &s.stand
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || u.replaced(lost) || u.hopeless[lost] || u.away[by] || u.replaced(by) {
		return fmt.Errorf("%w: %s cannot have a substitute", ErrLost, lost)
	}
	for _, f := range frames {
		if by != s.self() {
			err = s.remotes[by].outboxes[f.Tag.Kind.Class()].putAtOnce(f)
		} else if f.Tag.Step > after {
			s.inbox.put(key{from: by, tag: f.Tag}, by, f.Payload)
		}
		if err != nil {
			return err
		}
	}
	s.inbox.replace(lost, lost == s.rules.Coordinator) // before the substitute's messages count
	if u.of == nil {
		u.of = map[plan.PeerID]substitute{}
	}
	u.of[lost] = substitute{by, after}
	u.changed.wake()
	return nil
}

// LastCommit returns the newest commit that came of a coordinator before Substitute named who goes on in its place, as package
// wire encodes it; nil where none came.
func (s *Session) LastCommit(lost plan.PeerID) []byte { return s.inbox.lastCommit(lost) }

// Skip drops the messages for a lost peer of steps up to one, now and later: this node goes on in its place from the state after that step.
// Nobody receives them, and they would take room in the inbox.
func (s *Session) Skip(lost plan.PeerID, through plan.Step) {
	s.inbox.skip(func(k key, bytes int) bool {
		own := s.rules.Expect(k.from, s.self(), k.tag, bytes) == nil
		return k.tag.Step <= through && !own && s.rules.Expect(k.from, lost, k.tag, bytes) == nil
	})
}

// DropActivations drops the activations of a step with an index below a bound, now and until it is called for a later one. Nobody receives them.
func (s *Session) DropActivations(step plan.Step, below int32) {
	s.inbox.dropActivations(activations{step, below})
}

// Brought returns who brought a message that is from a peer by the plan: that one, or its substitute. Of a message that has not come
// it returns who is to bring it now.
func (s *Session) Brought(from plan.PeerID, tag wire.Tag) plan.PeerID {
	if by := s.inbox.broughtBy(key{from: from, tag: tag}); by != "" {
		return by
	}
	return s.stand.carrier(from)
}

// retry calls f for who does a peer's part, and again once a substitute does.
func (s *Session) retry(ctx context.Context, peer plan.PeerID, f func(plan.PeerID) error) error {
	for {
		err := f(s.stand.carrier(peer))
		if !errors.Is(err, ErrLost) || s.rules.Replaceable == nil || !s.rules.Replaceable(peer) || !s.stand.await(ctx, peer) {
			return err
		}
	}
}

// miss fails who waits for messages of a peer that is lost or has left, and of those in whose place it went on.
func (s *Session) miss(peer plan.PeerID, err error) {
	for _, part := range s.stand.miss(peer) {
		s.inbox.lose(part, err)
	}
}

// sender returns whom a peer's message is from by the plan, itself or one in whose place it goes on, and whether it is wanted
// here. Where it may be for a substitute of which this node does not know yet, it waits for that word.
func (s *Session) sender(ctx context.Context, by plan.PeerID, tag wire.Tag, bytes int) (from plan.PeerID, wanted bool, err error) {
	u := &s.stand
	u.mu.Lock()
	defer u.mu.Unlock()
	waiting := ctx
	for {
		for _, from := range u.carries(by) {
			for _, to := range u.carries(s.self()) {
				if s.rules.Expect(from, to, tag, bytes) == nil {
					return from, to == s.self() || tag.Step > u.of[to].after, nil
				}
			}
		}
		if waiting == ctx {
			var cancel context.CancelFunc
			waiting, cancel = context.WithTimeout(ctx, wordPatience)
			defer cancel()
		}
		if !s.conceivable(by, tag, bytes) {
			return by, false, fmt.Errorf("link: unexpected message: %w", s.rules.Expect(by, s.self(), tag, bytes))
		}
		if u.changed.await(waiting, &u.mu) != nil && ctx.Err() == nil {
			return by, false, errNoWord
		}
		if ctx.Err() != nil {
			return by, false, ctx.Err()
		}
	}
}

// conceivable reports whether the plan has a message for some substitutes.
func (s *Session) conceivable(by plan.PeerID, tag wire.Tag, bytes int) bool {
	if s.rules.Replaceable == nil {
		return false
	}
	from, to := []plan.PeerID{by}, []plan.PeerID{s.self()}
	for _, r := range s.order {
		if s.rules.Replaceable(r.id) {
			from, to = append(from, r.id), append(to, r.id)
		}
	}
	return slices.ContainsFunc(from, func(a plan.PeerID) bool {
		return slices.ContainsFunc(to, func(b plan.PeerID) bool { return a != b && s.rules.Expect(a, b, tag, bytes) == nil })
	})
}

// As returns what the workers of a lost peer exchange messages with, in whose place this node goes on. What they send to
// its own workers stays here. What they send in steps up to done, which all have reported, goes nowhere but among themselves: the others
// have it, but for the commit of the last one, which some may lack.
func (s *Session) As(lost plan.PeerID, done plan.Step) Part { return Part{s, lost, done} }

// Part is a lost peer's end of a session.
type Part struct {
	*Session
	lost plan.PeerID
	done plan.Step
}

// Send is Session.Send in the name of the lost peer.
func (p Part) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	lacking := f.Tag.Kind == wire.KindCommit && f.Tag.Step == p.done
	if f.Tag.Step <= p.done && to != p.lost && !lacking {
		return nil
	}
	if p.stand.carrier(to) != p.self() {
		return p.Session.Send(ctx, to, f)
	}
	p.movement.at(f.Tag.Step)
	if err := p.keep(ctx, p.lost, f); !errors.Is(err, ErrDuplicate) {
		return err
	}
	return nil // the lost peer had sent it
}
