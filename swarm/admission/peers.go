package admission

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Peers holds the peers that are connected, and which of them were admitted. Whatever talks to a peer asks
// it first. Its methods may be called from any goroutine.
type Peers struct {
	// mu guards all fields.
	mu      sync.Mutex
	visits  map[peer.ID]*Visit
	blocked map[peer.ID]error // why
	// changed is closed and replaced when a member comes or goes.
	changed chan struct{}
}

// Visit is the time that a peer is connected without a break.
type Visit struct {
	// Decided is closed at the first verdict, or when the peer leaves without one.
	Decided    chan struct{}
	closed     bool
	member     bool
	silent     bool
	used       time.Time
	refusal    error
	capability Capability
	instance   Instance
}

// NewPeers returns an empty set.
func NewPeers() *Peers {
	return &Peers{visits: map[peer.ID]*Visit{}, blocked: map[peer.ID]error{}, changed: make(chan struct{})}
}

// Arrive notes a connection. first reports whether it began the visit.
func (s *Peers) Arrive(p peer.ID) (v *Visit, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v = s.visits[p]
	if v == nil {
		v, first = &Visit{Decided: make(chan struct{}), used: time.Now()}, true
		s.visits[p] = v
	}
	return v, first
}

// Admit makes a connected peer a member. first reports whether it was none before, replaced whether it was
// one as an older instance. The error is ErrBlocked, or ErrNotMember for a peer that has left.
func (s *Peers) Admit(p peer.ID, c Capability, i Instance) (first, replaced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[p]
	switch {
	case s.blocked[p] != nil:
		return false, false, s.blocked[p]
	case v == nil:
		return false, false, ErrNotMember
	}
	first, replaced = !v.member, v.member && v.instance != i
	v.member, v.refusal, v.capability, v.instance = true, nil, c, i
	v.decide()
	if first {
		s.announce()
	}
	return first, replaced, nil
}

// SetSilent notes whether a connected peer owes a sign of life.
func (s *Peers) SetSilent(p peer.ID, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.visits[p]; v != nil {
		v.silent = silent
	}
}

// Silent reports whether a peer is connected and owes a sign of life.
func (s *Peers) Silent(p peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[p]
	return v != nil && v.silent
}

// Refuse notes why a peer stays out. A member stays one: the refusal of a second greeting does not undo the
// first.
func (s *Peers) Refuse(p peer.ID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.visits[p]; v != nil && !v.member {
		v.refusal = err
		v.decide()
	}
}

// Leave ends a visit unless still reports that the peer is connected after all. It calls still under its lock:
// a connection made meanwhile is either seen by it or arrives afterwards.
func (s *Peers) Leave(p peer.ID, still func() bool) (wasMember bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[p]
	if v == nil || still() {
		return false
	}
	delete(s.visits, p)
	v.decide()
	if v.member {
		s.announce()
	}
	return v.member
}

// Block refuses a peer from now on, with a reason that wraps ErrBlocked.
func (s *Peers) Block(p peer.ID, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked[p] = why
	if v := s.visits[p]; v != nil && v.member {
		v.member, v.refusal = false, why
		s.announce()
	}
}

// Blocked reports whether a peer was removed from the run.
func (s *Peers) Blocked(p peer.ID) bool { return s.Removal(p) != nil }

// Removal returns why a peer was removed from the run; nil for one that was not.
func (s *Peers) Removal(p peer.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked[p]
}

// Member reports whether a peer is connected and admitted.
func (s *Peers) Member(p peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[p]
	return v != nil && v.member
}

// Use notes that a peer is needed now, and reports whether it is connected and admitted.
func (s *Peers) Use(p peer.ID) (member bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[p]
	if v != nil {
		v.used = time.Now()
	}
	return v != nil && v.member
}

// Unused returns for how long a peer that is connected was not needed; 0 for any other.
func (s *Peers) Unused(p peer.ID) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.visits[p]; v != nil {
		return time.Since(v.used)
	}
	return 0
}

// Pending reports whether a peer is connected and there is no verdict on it.
func (s *Peers) Pending(p peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[p]
	return v != nil && !v.closed
}

// Stranger reports whether this visit goes on and has not made the peer a member.
func (s *Peers) Stranger(p peer.ID, v *Visit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visits[p] == v && !v.member
}

// Wait returns nil for a member, and blocks for a connected peer until its verdict: both ends greet at once,
// and the first to finish may open a stream before the other end knows. The verdict is about the
// peer, whichever connection it comes by. The error is ErrNotMember when the peer is not connected, or left
// before there was a verdict.
func (s *Peers) Wait(ctx context.Context, p peer.ID) error {
	s.mu.Lock()
	v := s.visits[p]
	s.mu.Unlock()
	if v == nil {
		return ErrNotMember
	}
	select {
	case <-v.Decided:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.member:
		return nil
	case v.refusal != nil:
		return v.refusal
	}
	return ErrNotMember
}

// Members lists the members' capabilities, sorted by peer.
func (s *Peers) Members() []Capability {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Capability, 0, len(s.visits))
	for _, v := range s.visits {
		if v.member {
			out = append(out, v.capability)
		}
	}
	slices.SortFunc(out, func(a, b Capability) int { return strings.Compare(string(a.Peer), string(b.Peer)) })
	return out
}

// Count returns how many members are connected.
func (s *Peers) Count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.visits {
		if v.member {
			n++
		}
	}
	return n
}

// Changed returns a channel that is closed when a member comes or goes next.
func (s *Peers) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// announce closes changed. The caller holds mu.
func (s *Peers) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// decide closes Decided once. The caller holds the set's mu.
func (v *Visit) decide() {
	if !v.closed {
		v.closed = true
		close(v.Decided)
	}
}
