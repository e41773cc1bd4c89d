package swarm

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// door is the admitted set: who is connected, and who of them was let in. Everything that
// talks to a peer asks it first.
type door struct {
	// mu guards all fields.
	mu       sync.Mutex
	visitors map[peer.ID]*visitor
	blocked  map[peer.ID]bool
	// changed is closed and replaced when a member comes or goes.
	changed chan struct{}
}

// visitor is a connected peer.
type visitor struct {
	// decided is closed at the first verdict, or when the peer leaves without one.
	decided    chan struct{}
	closed     bool
	member     bool
	refusal    error
	capability Capability
	instance   instance
}

func newDoor() *door {
	return &door{visitors: map[peer.ID]*visitor{}, blocked: map[peer.ID]bool{}, changed: make(chan struct{})}
}

// arrive notes a connection; it tells whether it is the peer's first.
func (d *door) arrive(p peer.ID) (v *visitor, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v = d.visitors[p]
	if v == nil {
		v, first = &visitor{decided: make(chan struct{})}, true
		d.visitors[p] = v
	}
	return v, first
}

// admit lets a connected peer in. replaced tells that it was in already as an older
// instance. A peer that is gone or blocked stays out.
func (d *door) admit(p peer.ID, c Capability, i instance) (first, replaced bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.visitors[p]
	switch {
	case d.blocked[p]:
		return false, false, ErrBlocked
	case v == nil:
		return false, false, ErrNotMember
	}
	first, replaced = !v.member, v.member && v.instance != i
	v.member, v.refusal, v.capability, v.instance = true, nil, c, i
	v.decide()
	if first {
		d.bump()
	}
	return first, replaced, nil
}

// refuse gives a peer its verdict. A member stays one: a refusal that comes late, from a
// second greeting, does not undo the first.
func (d *door) refuse(p peer.ID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.visitors[p]; v != nil && !v.member {
		v.refusal = err
		v.decide()
	}
}

// leave forgets a peer unless still says that it is connected after all. still is asked
// under the lock, so that a connection made meanwhile is either seen by it or arrives
// afterwards.
func (d *door) leave(p peer.ID, still func() bool) (wasMember bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.visitors[p]
	if v == nil || still() {
		return false
	}
	delete(d.visitors, p)
	v.decide()
	if v.member {
		d.bump()
	}
	return v.member
}

// block refuses a peer from now on.
func (d *door) block(p peer.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocked[p] = true
	if v := d.visitors[p]; v != nil && v.member {
		v.member, v.refusal = false, ErrBlocked
		d.bump()
	}
}

func (d *door) isBlocked(p peer.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked[p]
}

func (d *door) isMember(p peer.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.visitors[p]
	return v != nil && v.member
}

// isStranger tells whether this visit goes on and has not made the peer a member.
func (d *door) isStranger(p peer.ID, v *visitor) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.visitors[p] == v && !v.member
}

// wait returns nil for a member. For a peer that is connected and not yet decided on it
// waits for the verdict: both ends greet at once, and the first to finish may open a
// stream before the other end knows. The verdict is about the peer, whichever connection it
// comes by; ErrNotMember is none: the peer is not connected, or gone before there was one.
func (d *door) wait(ctx context.Context, p peer.ID) error {
	d.mu.Lock()
	v := d.visitors[p]
	d.mu.Unlock()
	if v == nil {
		return ErrNotMember
	}
	select {
	case <-v.decided:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case v.member:
		return nil
	case v.refusal != nil:
		return v.refusal
	}
	return ErrNotMember
}

// members lists the admitted peers with their capabilities, sorted by peer.
func (d *door) members() []Capability {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Capability, 0, len(d.visitors))
	for _, v := range d.visitors {
		if v.member {
			out = append(out, v.capability)
		}
	}
	slices.SortFunc(out, func(a, b Capability) int { return strings.Compare(string(a.Peer), string(b.Peer)) })
	return out
}

// watch is closed at the next change.
func (d *door) watch() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// bump wakes the watchers. The caller holds mu.
func (d *door) bump() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// decide closes decided once. The caller holds the door's mu.
func (v *visitor) decide() {
	if !v.closed {
		v.closed = true
		close(v.decided)
	}
}
