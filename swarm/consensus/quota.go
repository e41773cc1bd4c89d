package consensus

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"pnode/planner/plan"
)

// What one member may propose through another node: an entry a second in the long run and a report of a stage now
// and then are usual. What the members may write to every node's disk is bounded by it.
const (
	proposalsPerS     = 10
	proposalsBurst    = 100
	proposalBytesPerS = 256 << 10
	proposalBytes     = 4 * MaxEntryBytes // at once
)

// quotas bounds what each peer proposes through this node. The zero value is ready.
type quotas struct {
	mu sync.Mutex // guards of
	of map[plan.PeerID]*quota
}

type quota struct{ proposals, bytes *rate.Limiter }

// take counts a proposal of a peer, and returns why it is too early for another; it is to be sent again later.
func (q *quotas) take(peer plan.PeerID, bytes int, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.of[peer]
	if one == nil {
		q.prune(now)
		one = &quota{rate.NewLimiter(proposalsPerS, proposalsBurst), rate.NewLimiter(proposalBytesPerS, proposalBytes)}
		q.of[peer] = one
	}
	if !one.proposals.AllowN(now, 1) || !one.bytes.AllowN(now, bytes) {
		return fmt.Errorf("%w: too much is proposed by %s: at most %d entries and %d KiB a second are taken", errRetry, peer.Short(), proposalsPerS, proposalBytesPerS>>10)
	}
	return nil
}

// prune forgets the peers that have used nothing lately.
func (q *quotas) prune(now time.Time) {
	if q.of == nil {
		q.of = map[plan.PeerID]*quota{}
	}
	for p, one := range q.of {
		if one.proposals.TokensAt(now) >= proposalsBurst && one.bytes.TokensAt(now) >= proposalBytes {
			delete(q.of, p)
		}
	}
}
