package feed

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"pnode/planner/plan"
)

const (
	// firstRetry is how long a voter that fed for less than lasting is not asked again; it doubles up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	lasting    = 30 * time.Second
	// lookEvery is how often a follower looks at its feeder, at least, and rebalanceEvery about how often it asks whether another
	// voter comes before that.
	lookEvery      = time.Second
	rebalanceEvery = time.Minute
	// othersRetry bounds how long no other member is asked who votes, where no voter is known or feeds and those asked did not say.
	othersRetry = time.Second
	// contactsAtOnce bounds the others that are asked who votes, where no voter is known or feeds.
	contactsAtOnce = 3
	// maxHints bounds the voters that others name.
	maxHints = 16
)

// Session is a stream on which this node is fed.
type Session interface {
	// Done returns a channel that is closed when the stream has ended.
	Done() <-chan struct{}
	// Heard returns when the newest message came.
	Heard() time.Time
	// Close ends the stream, and returns once Done is closed.
	Close()
}

// Follower is a node that takes the log from voters.
type Follower interface {
	// Follows reports whether the node is to be fed now.
	Follows() bool
	// Voters returns who votes, as far as the node knows, and who leads.
	Voters() (voters []plan.PeerID, leader plan.PeerID)
	// Contacts returns other members that may know who votes.
	Contacts() []plan.PeerID
	// Changed returns a channel that is closed when any of these may have changed.
	Changed() <-chan struct{}
	// Open has a voter feed the node. Where that one does not, it may name the voters.
	Open(ctx context.Context, voter plan.PeerID, last bool) (s Session, voters []plan.PeerID, err error)
	// End returns the last entry of the node's log.
	End() uint64
	// Members returns how many members the run has, or had not long ago; 0 where the node does not know.
	Members() int
}

// Taker keeps a node fed.
type Taker struct {
	node   Follower
	self   plan.PeerID
	hints  []plan.PeerID // voters that others have named
	failed map[plan.PeerID]failure
	others failure // of members that do not feed: when one is asked again who votes, however many there are
}

// failure says until when a peer is not asked.
type failure struct {
	until time.Time
	pause time.Duration
}

// NewTaker returns what keeps a node fed.
func NewTaker(self plan.PeerID, node Follower) *Taker {
	return &Taker{node: node, self: self, failed: map[plan.PeerID]failure{}}
}

// Run has the node fed, while it is to be, until ctx ends.
func (t *Taker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := t.node.Changed()
		if !t.node.Follows() {
			pause(ctx, changed, lookEvery)
			continue
		}
		if peer, last, ok := t.next(time.Now()); ok {
			t.try(ctx, peer, last)
			continue
		}
		pause(ctx, nil, firstRetry/2+rand.N(firstRetry/2))
	}
}

// pause waits for a change, for a while or until ctx ends.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// order returns the peers to ask, in order, and from which on they are none that should feed: the leader, and others
// than voters.
func (t *Taker) order() (peers []plan.PeerID, lasts int) {
	voters, leader := t.node.Voters()
	peers = Order(t.self, voters, leader)
	for _, p := range Order(t.self, t.hints, leader) {
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	if i := slices.Index(peers, leader); i >= 0 {
		peers = append(slices.Delete(peers, i, i+1), leader)
		return peers, len(peers) - 1
	}
	return peers, len(peers)
}

// next returns whom to ask now, and whether nobody else would feed this node. It asks members that may know who votes
// where no voter is known that may be asked now.
func (t *Taker) next(now time.Time) (peer plan.PeerID, last, ok bool) {
	for p, f := range t.failed { // bounded by those that are asked within lastRetry
		if now.Sub(f.until) > lasting {
			delete(t.failed, p)
		}
	}
	may := func(p plan.PeerID) bool { return !now.Before(t.failed[p].until) }
	peers, lasts := t.order()
	for i, p := range peers {
		if may(p) {
			return p, i >= lasts, true
		}
	}
	if now.Before(t.others.until) {
		return "", false, false
	}
	contacts := slices.DeleteFunc(slices.Clone(t.node.Contacts()), func(p plan.PeerID) bool { return p == t.self || slices.Contains(peers, p) })
	for range min(contactsAtOnce, len(contacts)) {
		if p := contacts[rand.N(len(contacts))]; may(p) {
			return p, false, true
		}
	}
	return "", false, false
}

// try has a peer feed this node until one of them ends that.
func (t *Taker) try(ctx context.Context, peer plan.PeerID, last bool) {
	began, end := time.Now(), t.node.End()
	known, _ := t.order()
	s, voters, err := t.open(ctx, peer, last)
	if len(voters) > 0 {
		t.hints = voters[:min(len(voters), maxHints)]
	}
	silent := false
	if err == nil {
		peer, silent = t.stay(ctx, s, peer, last)
	}
	now := time.Now()
	switch {
	case silent: // it may not answer either
		t.failed[peer] = failure{until: now.Add(lastRetry), pause: lastRetry}
	case err == nil && (now.Sub(began) >= lasting || t.node.End() > end):
		t.failed[peer] = failure{until: now.Add(rand.N(firstRetry / 4))} // a snapshot came, or it was good until now
	default:
		t.failed[peer] = t.failed[peer].again(now, lastRetry)
	}
	if err == nil {
		t.others = failure{}
	} else if !slices.Contains(known, peer) {
		t.others = t.others.again(now, othersRetry)
	}
}

// again returns when to ask after one more failure: after twice as long as before, with some chance, up to most.
func (f failure) again(now time.Time, most time.Duration) failure {
	f.pause = min(max(2*f.pause, firstRetry), most)
	f.until = now.Add(f.pause/2 + rand.N(f.pause))
	return f
}

// stay returns when a stream has ended, or is to end because nothing comes on it. Where another voter comes first it
// changes over to that one's. It returns who fed last, and whether that one was silent.
func (t *Taker) stay(ctx context.Context, s Session, peer plan.PeerID, last bool) (feeder plan.PeerID, silent bool) {
	defer func() { s.Close() }()
	look := time.NewTimer(0)
	defer look.Stop()
	balance := time.Now().Add(pauseOf(last))
	for {
		select {
		case <-s.Done():
			return peer, false
		case <-ctx.Done():
			return peer, false
		case <-look.C:
		}
		now := time.Now()
		left := Patience(t.node.Members()) - now.Sub(s.Heard())
		if left < 0 || !t.node.Follows() {
			return peer, left < 0
		}
		look.Reset(min(lookEvery, left+time.Millisecond))
		if now.Before(balance) {
			continue
		}
		balance = now.Add(pauseOf(last))
		first, worse, ok := t.next(now)
		if !ok || worse || first == peer {
			continue
		}
		better, _, err := t.open(ctx, first, false)
		if err != nil {
			t.failed[first] = failure{until: time.Now().Add(lastRetry / 2), pause: lastRetry}
			continue
		}
		s.Close()
		s, peer, last = better, first, false
	}
}

// pauseOf returns how long a follower waits until it asks whether another voter comes before the one that feeds it: not long where
// that is the leader.
func pauseOf(last bool) time.Duration {
	every := rebalanceEvery
	if last {
		every = shedWithin
	}
	return every/2 + rand.N(every)
}

// open has a peer feed this node.
func (t *Taker) open(ctx context.Context, peer plan.PeerID, last bool) (Session, []plan.PeerID, error) {
	ctx, cancel := context.WithTimeout(ctx, MaxPatience)
	defer cancel()
	return t.node.Open(ctx, peer, last)
}
