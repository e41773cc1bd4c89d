package link

import (
	"errors"
	"fmt"

	"github.com/quic-go/quic-go"
)

// errReborn is why a peer is lost that was started again.
var errReborn = errors.New("link: the peer was started again and has nothing of what was sent before")

// judge tells whether an error says more than that a connection broke, and acts on it.
func (r *remote) judge(err error) bool {
	if code, ok := cutBy(err); ok {
		switch code {
		case streamLeft:
			r.leave()
			return true
		case streamOver:
			r.depart()
			return true
		case streamReborn:
			r.lose(errReborn)
			return true
		case streamRefused:
			r.lose(err)
			return true
		}
	}
	var closed *quic.ApplicationError
	if errors.As(err, &closed) && closed.Remote && closed.ErrorCode != codeSilent && closed.ErrorCode != codeReplaced {
		r.lose(fmt.Errorf("connection: %w", err))
		return true
	}
	return undecodable(err) && r.protest(err)
}

// protest closes the connections of a peer that answers what it cannot mean.
func (r *remote) protest(err error) bool {
	r.session.endpoint.log.Error("acknowledgements make no sense", "peer", r.id, "reason", err)
	r.lose(err)
	return true
}

// lose reports the peer, once, and cuts everything that belongs to it.
func (r *remote) lose(reason error) {
	r.mu.Lock()
	again := r.gone
	r.gone = true
	r.mu.Unlock()
	if again || !r.session.alive() {
		return
	}
	err := fmt.Errorf("%w: %w", ErrLost, reason)
	r.session.endpoint.log.Warn("peer lost", "peer", r.id, "generation", r.session.generation, "reason", reason)
	r.session.lost <- r.id // first, so that whoever sees a call fail finds the reason in Lost
	r.session.inbox.lose(r.id, err)
	r.fail(err)
	r.endCtx()
	r.endAll()
}

// leave notes that the peer has closed its session: what is sent has no reader. Messages
// it sent before may still come.
func (r *remote) leave() {
	r.left.Store(true)
	r.fail(ErrLeft)
}

// depart notes that the peer has closed its session and is through with what it sent: all of
// it has come, or never will.
func (r *remote) depart() {
	r.leave()
	r.session.inbox.lose(r.id, ErrLeft)
}

func (r *remote) fail(err error) {
	for _, o := range r.outboxes {
		o.fail(err)
	}
}
