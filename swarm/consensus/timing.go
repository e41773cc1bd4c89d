package consensus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

// Bounds of what follows the round trips that are measured here. The leader gives its leadership up after leaseTimeout
// without a majority, which no measurement changes. A follower waits for at least heartbeatTimeout, which is longer. So
// the old leader steps down before a new one is elected, also where members measure different things.
const (
	// maxHeartbeatTimeout bounds how long a follower waits for the leader's next message.
	maxHeartbeatTimeout = 10 * time.Second
	// maxElectionTimeout bounds how long a candidate waits for votes.
	maxElectionTimeout = 16 * time.Second
	// maxDialTimeout bounds how long raft waits for a stream to a peer.
	maxDialTimeout = 15 * time.Second

	// Times are so many of the longest round trip of those that are remembered.
	heartbeatGaps = 4 // a gap between heartbeats is a round trip, and the leader's pause
	voteTrips     = 2
	dialTimes     = 3
	answerTrips   = 5

	gapsRemembered  = 64 // half a minute of heartbeats at most
	votesRemembered = 8  // two elections among five voters

	writesRemembered = 8
	// timingGrain is by how much a timeout has to change before raft is told.
	timingGrain = 250 * time.Millisecond
)

// recent holds the newest of some durations, oldest first.
type recent struct {
	most int
	all  []time.Duration
}

func (r *recent) add(d time.Duration) {
	r.all = append(r.all, d)
	r.all = r.all[max(0, len(r.all)-r.most):]
}

// longest returns the longest one, 0 of none.
func (r *recent) longest() time.Duration {
	if len(r.all) == 0 {
		return 0
	}
	return slices.Max(r.all)
}

// timing learns from raft's own messages how long round trips take, and keeps raft's timeouts in proportion to them. A
// line of 400 ms, or a machine that answers late because it is busy, must not look like a leader that is dead, and votes
// that come late must still count. Its methods may be called from any goroutine.
type timing struct {
	mu     sync.Mutex // guards what follows
	raft   *raft.Raft // nil before it has been started
	leads  bool
	fed    time.Duration // how long those may be silent who bring the leader's messages; 0 where it does itself
	gaps   recent        // between two messages of the leader, as a follower sees them
	from   plan.PeerID
	last   time.Time // when from sent the newest one
	votes  recent    // from the question for a vote to its answer, the stream's opening included
	writes recent    // of the log to this node's disk
	trips  map[plan.PeerID]time.Duration
	dials  map[plan.PeerID]time.Duration // what the next stream to a peer may take
	latest raft.ReloadableConfig
}

func newTiming() *timing {
	return &timing{
		gaps: recent{most: gapsRemembered}, votes: recent{most: votesRemembered}, writes: recent{most: writesRemembered},
		trips: map[plan.PeerID]time.Duration{}, dials: map[plan.PeerID]time.Duration{},
	}
}

// begin has the timeouts of raft follow from now on.
func (t *timing) begin(r *raft.Raft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raft, t.leads, t.latest = r, r.State() == raft.Leader, r.ReloadableConfig()
	t.adjust()
}

// heard notes a message that came from a leader.
func (t *timing) heard(leader plan.PeerID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gap := now.Sub(t.last); leader == t.from && gap < maxHeartbeatTimeout { // a longer one is a cut
		t.gaps.add(gap)
	}
	t.from, t.last, t.fed = leader, now, 0
	t.adjust()
}

// feeds notes that others bring the leader's messages from now on, and for how long they may be silent, until one comes from
// the leader itself.
func (t *timing) feeds(patience time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fed = patience
	t.adjust()
}

// voted notes how long the answer to a question for a vote took.
func (t *timing) voted(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.votes.add(took)
	t.adjust()
}

// wrote notes how long a write of the log took.
func (t *timing) wrote(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes.add(took)
}

// write returns how long a write of the log takes here: the longest of the newest ones.
func (t *timing) write() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes.longest()
}

// answered notes how long a peer's answer to the leader took.
func (t *timing) answered(peer plan.PeerID, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trips[peer] = took
	t.bound()
}

// asked notes how long a member's answer to a short question took. One that did not come in time may take twice as long the next time.
func (t *timing) asked(peer plan.PeerID, took time.Duration, err error) {
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	if err != nil {
		took = 2 * took / answerTrips
	}
	t.answered(peer, took)
}

// dialed notes how long it took to open a stream to a peer, or not to. One that ran out of time may take twice as long
// the next time.
func (t *timing) dialed(peer plan.PeerID, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.dials[peer] = min(dialTimes*took, maxDialTimeout)
	case errors.Is(err, context.DeadlineExceeded):
		t.dials[peer] = min(2*took, maxDialTimeout)
	}
	t.bound()
}

// bound forgets peers where there are more than a run has; the caller holds mu.
func (t *timing) bound() {
	for _, m := range []map[plan.PeerID]time.Duration{t.trips, t.dials} {
		if len(m) > 2*MaxMembers {
			clear(m)
		}
	}
}

// dialTimeout returns how long a stream to a peer may take to open.
func (t *timing) dialTimeout(peer plan.PeerID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.dials[peer], rpcTimeout)
}

// answerTimeout returns how long the answers of some peers to a short question may take.
func (t *timing) answerTimeout(peers ...plan.PeerID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	longest := time.Duration(0)
	for _, p := range peers {
		longest = max(longest, t.trips[p])
	}
	return min(max(answerTrips*longest, readyTimeout), requestTimeout)
}

// succeedAfter returns by how much a voter waits longer than the one before it, to stand for election.
func (t *timing) succeedAfter() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.gaps.longest(), succeedAfter)
}

// lead notes whether this node leads.
func (t *timing) lead(leads bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leads = leads
	t.adjust()
}

// adjust tells raft its timeouts where they have changed; the caller holds mu.
func (t *timing) adjust() {
	if t.raft == nil {
		return
	}
	next := t.latest
	next.HeartbeatTimeout, next.ElectionTimeout = t.timeouts()
	if next == t.latest {
		return
	}
	if t.raft.ReloadConfig(next) == nil { // which refuses values that are out of order alone
		t.latest = next
	}
}

// timeouts returns how long a follower waits for the leader's next message, and a candidate for votes. The leader sends
// every tenth of the first: that it keeps short.
func (t *timing) timeouts() (heartbeat, election time.Duration) {
	heartbeat = grained(heartbeatGaps*t.gaps.longest(), heartbeatTimeout, maxHeartbeatTimeout)
	heartbeat = max(heartbeat, t.fed)
	election = grained(voteTrips*t.votes.longest(), heartbeat, maxElectionTimeout)
	if t.leads {
		heartbeat = heartbeatTimeout
	}
	return heartbeat, election
}

// grained returns a duration within bounds, rounded up.
func grained(d, least, most time.Duration) time.Duration {
	return min(max((d+timingGrain-1)/timingGrain*timingGrain, least), most)
}
