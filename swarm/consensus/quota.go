package consensus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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

	// A process joins once, or again when it was taken for dead. Each time makes the plans that are searched for out of
	// date, so that a member that joins in a loop would leave none.
	joinEvery  = 10 * time.Second
	joinsBurst = 4
)

// quotas bounds what each peer proposes: on the leader those who signed it, elsewhere those who send it. The zero value
// is ready.
type quotas struct {
	mu sync.Mutex // guards of
	of map[plan.PeerID]*quota
}

type quota struct{ proposals, bytes, joins *rate.Limiter }

// take counts a proposal of a peer, and returns why it is too early for another; it is to be sent again later.
func (q *quotas) take(peer plan.PeerID, bytes int, joins bool, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.of[peer]
	if one == nil {
		q.prune(now)
		one = &quota{
			rate.NewLimiter(proposalsPerS, proposalsBurst), rate.NewLimiter(proposalBytesPerS, proposalBytes),
			rate.NewLimiter(rate.Every(joinEvery), joinsBurst),
		}
		q.of[peer] = one
	}
	if joins && !one.joins.AllowN(now, 1) {
		return fmt.Errorf("%w: %s joins too often: once in %v is taken", errRetry, peer.Short(), joinEvery)
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
		if one.proposals.TokensAt(now) >= proposalsBurst && one.bytes.TokensAt(now) >= proposalBytes && one.joins.TokensAt(now) >= joinsBurst {
			delete(q.of, p)
		}
	}
}

// maxRequestsOfOne bounds the requests of one peer that are served at the same time, of maxRequests.
const maxRequestsOfOne = 8

// slots bounds the requests that are served at the same time, of all peers and of each. Voters have slots of their own:
// members that hold all others cannot keep the leader out.
type slots struct {
	all, voters *semaphore.Weighted
	mu          sync.Mutex // guards of
	of          map[plan.PeerID]int
}

// maxVoterRequests bounds the requests of voters: each of them has its share.
const maxVoterRequests = maxVoters * maxRequestsOfOne

func newSlots() *slots {
	return &slots{all: semaphore.NewWeighted(maxRequests), voters: semaphore.NewWeighted(maxVoterRequests), of: map[plan.PeerID]int{}}
}

// pool returns where a peer's slots come from.
func (s *slots) pool(voter bool) *semaphore.Weighted {
	if voter {
		return s.voters
	}
	return s.all
}

// take reports whether another request of a peer is served. If so, release is to be called after it, with the same voter.
func (s *slots) take(peer plan.PeerID, voter bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[peer] >= maxRequestsOfOne || !s.pool(voter).TryAcquire(1) {
		return false
	}
	s.of[peer]++
	return true
}

func (s *slots) release(peer plan.PeerID, voter bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[peer]--; s.of[peer] == 0 {
		delete(s.of, peer)
	}
	s.pool(voter).Release(1)
}

// close waits until no request is served, and lets none in any more.
func (s *slots) close() {
	_ = s.all.Acquire(context.Background(), maxRequests)
	_ = s.voters.Acquire(context.Background(), maxVoterRequests)
}
