package link

import (
	"context"
	"errors"
	"time"

	"pnode/planner/plan"
)

// Refuser is a Network that can tell a dead process from a silent network.
type Refuser interface {
	// Refuses tells whether the peer's host says that nobody listens at the peer's address,
	// as the operating system does when a process has ended, however it did. Silence is no
	// refusal. It takes a moment.
	Refuses(ctx context.Context, peer plan.PeerID) bool
}

var (
	errRefused = errors.New("link: nobody listens at the peer's address any more")
	errDialing = errors.New("link: a connection is being made already")
)

// dialer makes the connections that a remote lacks, one at a time. All of it but attempt
// belongs to the goroutine of remote.run.
type dialer struct {
	remote   *remote
	dialed   chan error  // capacity 1: the result of an attempt
	again    *time.Timer // sets ready
	ready    bool
	running  bool
	attempts int
	retry    time.Duration
	refusals int
}

// newDialer leaves the first attempt to the peer for a while if its ID is the lower one.
func newDialer(r *remote) *dialer {
	var patience time.Duration
	if e := r.session.endpoint; e.net.Self() > r.id {
		patience = e.opt.interval()
	}
	return &dialer{remote: r, dialed: make(chan error, 1), again: time.NewTimer(patience), ready: patience == 0, retry: firstRetry}
}

// want begins an attempt if connections are lacking and it is time.
func (d *dialer) want(lacking int) {
	if lacking <= 0 || !d.ready || d.running || d.remote.left.Load() {
		return
	}
	again := d.attempts > 0 || d.remote.boot.Load() != 0
	d.attempts++
	d.running = true
	d.remote.session.also(func() { d.dialed <- d.attempt(again) })
}

// hurry does not leave the next attempt to the peer.
func (d *dialer) hurry() { d.ready = true }

// attempt dials once; one that is not the first asks before whether the peer is dead.
func (d *dialer) attempt(again bool) error {
	e, id := d.remote.session.endpoint, d.remote.id
	ctx, cancel := context.WithTimeout(d.remote.flush, e.opt.ConnTimeout)
	defer cancel()
	if refuser, ok := e.net.(Refuser); ok && again && refuser.Refuses(ctx, id) {
		return errRefused
	}
	if !e.mayDial(id) {
		return errDialing
	}
	_, err := e.dial(ctx, id)
	return err
}

// note takes the result of an attempt, and tells whether the peer has refused twice in a
// row: a network that reorders its packets may bring one refusal late.
func (d *dialer) note(err error) (dead bool) {
	d.running = false
	switch {
	case err == nil:
		d.retry, d.refusals = firstRetry, 0
		return false
	case errors.Is(err, errRefused):
		d.refusals++
	default:
		d.refusals = 0
	}
	d.ready = false
	d.again.Reset(d.retry)
	d.retry = min(2*d.retry, lastRetry)
	return d.refusals > 1
}

// mayDial reserves the next dial of a peer.
func (e *Endpoint) mayDial(id plan.PeerID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peer(id)
	if e.closed || p.dialing {
		return false
	}
	p.dialing = true
	return true
}
