package leader

import (
	"context"
	"sync"
	"time"

	"pnode/swarm/consensus"
)

// questions ask silent members, and their hosts, concurrently with everything else: the answers take seconds, in which the leader
// has more to do. The zero value has asked nobody.
type questions struct {
	work sync.WaitGroup
	mu   sync.Mutex // guards open
	open map[process]bool
}

// ask asks a member for a sign of life, and without one its host whether the process has ended, unless that is under way, or known:
// news of an end wakes the leader, which would ask again at once.
func (l *Leader) ask(ctx context.Context, m consensus.Member) {
	q, id := &l.questions, process{m.Peer, m.ProcessEpoch}
	if l.ended.has(id) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[id] {
		return
	}
	if q.open == nil {
		q.open = map[process]bool{}
	}
	q.open[id] = true
	q.work.Go(func() {
		defer func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			delete(q.open, id)
		}()
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		switch {
		case l.Consensus.Answers(ctx, m.Peer): // only its gossip does not come through
			l.Log.Debug("no heartbeats of a node that lives", "peer", m.Peer)
			l.Heartbeats.Touch(m.Peer, time.Now())
		case ctx.Err() == nil && l.Peers.Refuses(ctx, m.Peer):
			l.Log.Info("a silent node's host says that its process has ended", "peer", m.Peer)
			l.ended.note(id)
			l.wake()
		}
	})
}
