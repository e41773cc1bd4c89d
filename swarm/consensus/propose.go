package consensus

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

const (
	maxRequests  = 32 // incoming requests served at the same time
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 500 * time.Millisecond

	// proposeTimeout is how long a proposal may take where disks are quick.
	proposeTimeout = 10 * time.Second
	// maxProposeTimeout bounds it where they are slow.
	maxProposeTimeout = 2 * time.Minute
	// writesAProposal is how many writes a proposal may take, one after the other: what is being written when it comes, itself, and what
	// others proposed meanwhile.
	writesAProposal = 5
	// Where one of the newest writes here took slowWrite, or the newest commit slowCommit, proposals go to raft together: raft does not look at
	// what is committed while it writes. What follows on a commit is waited for for a linger, so that it goes with the next.
	slowWrite  = 250 * time.Millisecond
	slowCommit = time.Second
	linger     = 500 * time.Millisecond
	// commitsRemembered are proposals whose times count.
	commitsRemembered = 8
)

// Propose has the leader commit e and returns nil when that is done and the entry was
// accepted; the State of a node that does not lead may follow a moment later. A refusal
// wraps ErrRejected. While there is no leader it tries again, until ctx ends: then the
// error wraps ErrNoLeader, and the entry may or may not have been committed. Entries are
// made so that proposing one again is harmless. What only the leader may propose goes to no other node: while this one
// does not lead, its refusal wraps ErrStale, too.
func (n *Node) Propose(ctx context.Context, e Entry) error {
	backoff, began := firstBackoff, time.Now()
	for attempt := 0; ; attempt++ {
		leader, _, leads := n.Leader()
		if !leads && ruling(n.State(), n.self, e) {
			return fmt.Errorf("%w: propose %T: this node does not lead: %w", ErrRejected, e, ErrStale)
		}
		p, err := n.author.sign(n.State(), e)
		if err != nil {
			return err
		}
		err = n.try(ctx, request{op: opPropose, hops: 1, body: p.encode()}, attempt)
		if leader == "" {
			began = time.Now() // no disk is to blame for what an election takes
		} else if !leads && (err == nil || ctx.Err() != nil) { // a refusal may come before anything is written
			n.commits.asked(time.Since(began))
		}
		if err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrClosed) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: propose %T: %w: %w", ErrNoLeader, e, ctx.Err(), err)
		case <-n.ended:
			return n.over()
		case <-time.After(backoff):
			backoff = min(2*backoff, lastBackoff)
		}
	}
}

// try makes one attempt: here when this node leads, at the leader when one is known, else
// through one of the contacts. Every other attempt goes through a contact, in case the
// leader cannot be reached from here.
func (n *Node) try(ctx context.Context, q request, attempt int) error {
	if err := n.over(); err != nil {
		return err
	}
	if n.engine.Load().raft.State() == raft.Leader {
		return n.commit(ctx, q.body)
	}
	target, _, _ := n.Leader()
	if contacts := n.contacts(); len(contacts) > 0 && target == "" {
		target = contacts[attempt%len(contacts)]
	} else if len(contacts) > 0 && attempt%2 == 1 {
		target = contacts[attempt/2%len(contacts)]
	}
	if target == "" || target == n.self {
		return errRetry
	}
	r, err := n.ask(ctx, target, q)
	if err != nil {
		return err
	}
	return r.err()
}

// contacts returns the peers that may know the leader.
func (n *Node) contacts() []plan.PeerID {
	var contacts []plan.PeerID
	met := map[plan.PeerID]bool{n.self: true}
	add := func(p plan.PeerID) {
		if !met[p] {
			met[p] = true
			contacts = append(contacts, p)
		}
	}
	for _, p := range n.config.Contacts() {
		add(p)
	}
	for _, m := range n.State().Members {
		if m.State != Gone {
			add(m.Peer)
		}
	}
	return contacts
}

// commit reads a proposal and has raft commit it on this node, the leader.
func (n *Node) commit(ctx context.Context, body []byte) error {
	p, err := n.author.open(body)
	if err != nil {
		n.config.Logger.Warn("consensus: a proposal is refused", "said to be by", p.author, "cause", err)
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return n.enter(ctx, p, body)
}

// enter has raft commit a proposal that open has returned for these bytes, on this node, the leader, and returns its outcome. When ctx ends
// before there is one, it stays open whether the entry is committed.
func (n *Node) enter(ctx context.Context, p proposal, body []byte) error {
	var err error
	if _, leads := p.entry.(Lead); leads && p.author != n.self {
		err = Author{Peer: p.author}.refused(n.State(), p.entry, "the leader")
	}
	if redeem, ok := p.entry.(Redeem); err == nil && ok {
		err = redeem.overdue(n.State(), n.config.Now())
	}
	if invite, ok := p.entry.(Invite); err == nil && ok {
		err = invite.misdated(n.State(), n.config.Now())
	}
	if err != nil {
		n.config.Logger.Warn("consensus: a proposal is refused", "said to be by", p.author, "cause", err)
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	n.roll.await(ctx, p.entry)
	n.mu.Lock()
	closing, changing := n.closing, n.changing
	if !closing && !changing {
		n.applies.Add(1)
	}
	n.mu.Unlock()
	if changing {
		return fmt.Errorf("%w: the log changes over to another lineage", errRetry)
	}
	if closing {
		return n.over()
	}
	commit, again := n.commits.begin(p, time.Now())
	if again {
		n.applies.Done()
	} else {
		go func() {
			defer n.applies.Done()
			n.commits.end(commit, n.commits.carry(n.engine.Load().raft, p, body, n.config.Logger), time.Now())
		}()
	}
	select {
	case <-commit.done:
		return commit.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errRetry, ctx.Err())
	}
}

// commits knows what this leader is having committed, and how long that takes. Its methods may be called concurrently.
type commits struct {
	timing *timing

	mu    sync.Mutex // guards the rest
	open  map[kind]*commit
	times recent // from the proposal to its outcome, of this node's and others'

	took    time.Duration // by the newest that raft committed, once it had it
	running int           // proposals that raft has
	waiting []waiter      // those that wait for them, in order
	gathers *time.Timer   // until they go; nil while raft has some, or none wait
}

// kind groups proposals of which each changes what the one before said. Each save is one of its own.
type kind struct {
	author plan.PeerID
	entry  string // its type
}

// commit is one proposal on its way.
type commit struct {
	body  []byte // the entry
	began time.Time
	done  chan struct{} // closed once err is the outcome
	err   error
}

// waiter is a proposal that give gives to raft when it is its turn; gone is closed then.
type waiter struct {
	give   func()
	urgent bool
	gone   chan struct{}
}

func newCommits(t *timing) *commits {
	return &commits{timing: t, open: map[kind]*commit{}, times: recent{most: commitsRemembered}}
}

// begin returns the commit of a proposal, and whether it is on its way already: the author proposes the same again, since it has waited for
// the outcome as long as it would. Another proposal of the kind in between makes it a new one.
func (c *commits) begin(p proposal, now time.Time) (one *commit, again bool) {
	k := kind{p.author, fmt.Sprintf("%d %T", p.incarnation, p.entry)}
	if _, saved := p.entry.(StageSaved); saved { // a node may report several at a time
		k.entry += string(p.body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[k]; one != nil && bytes.Equal(one.body, p.body) {
		return one, true
	}
	one = &commit{body: p.body, began: now, done: make(chan struct{})}
	c.open[k] = one
	return one, false
}

// moves reports whether a member's own change of its state is on its way.
func (c *commits) moves(p plan.PeerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.open {
		if k.author == p && strings.HasSuffix(k.entry, fmt.Sprintf(" %T", SetMemberState{})) {
			return true
		}
	}
	return false
}

// carry has raft commit an entry, and returns its outcome. Raft answers while it runs: an entry that is not committed when the leader has
// lost its majority, after leaseTimeout.
func (c *commits) carry(engine *raft.Raft, p proposal, body []byte, log *slog.Logger) error {
	term := engine.CurrentTerm()
	var began time.Time
	var future raft.ApplyFuture
	c.turn(awaited(p.entry), func() {
		if engine.CurrentTerm() == term { // others may have gone before it meanwhile
			began, future = time.Now(), engine.Apply(body, enqueueTimeout+writesAProposal*c.timing.write())
		}
	})
	defer c.leave()
	if future == nil {
		return fmt.Errorf("%w: another term", errRetry)
	}
	if err := future.Error(); err != nil {
		return fmt.Errorf("%w: %w", errRetry, err)
	}
	took := time.Since(began)
	c.mu.Lock()
	c.took = took
	c.mu.Unlock()
	refusal, _ := future.Response().(error)
	if errors.Is(refusal, ErrForbidden) {
		log.Warn("consensus: a proposal is refused", "by", p.author, "cause", refusal)
	}
	if refusal == nil && awaited(p.entry) && c.timing.write() <= commitTimeout && took < slowCommit {
		engine.Barrier(enqueueTimeout) // followers learn with the next entry that this one is committed, or after commitTimeout: another write may take longer
	}
	return refusal
}

// turn has give called when a proposal may go to raft, and returns then: at once where disks are quick. Elsewhere those that come while raft
// has some go together after them, in the order in which they came: at once with one that steps stand still for, and else after a linger.
func (c *commits) turn(urgent bool, give func()) {
	w := waiter{give, urgent, make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, w)
	if c.timing.write() < slowWrite && c.took < slowCommit || c.running == 0 && (urgent || c.gathers == nil) {
		c.release()
	}
	c.mu.Unlock()
	<-w.gone
}

// leave notes that raft has a proposal no longer.
func (c *commits) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running > 0 {
		return
	}
	if slices.ContainsFunc(c.waiting, func(w waiter) bool { return w.urgent }) {
		c.release()
		return
	}
	if c.gathers != nil {
		c.gathers.Stop()
	}
	c.gathers = time.AfterFunc(linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.release()
	})
}

// release has all that wait go, one right after the other: raft writes at once what it finds waiting. The caller holds mu.
func (c *commits) release() {
	if c.gathers != nil {
		c.gathers.Stop()
		c.gathers = nil
	}
	group := c.waiting
	c.waiting = nil
	c.running += len(group)
	go func() {
		for _, w := range group {
			w.give()
		}
		for _, w := range group {
			close(w.gone)
		}
	}()
}

// end notes the outcome of a commit.
func (c *commits) end(one *commit, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.err = err
	close(one.done)
	if !errors.Is(err, errRetry) { // else it says nothing of disks
		c.times.add(now.Sub(one.began))
	}
	for k, open := range c.open {
		if open == one {
			delete(c.open, k)
		}
	}
}

// Patience returns how long to wait for the outcome of a proposal: longer where disks are slow, which those on their way show as well. What
// is proposed again after that only adds to what they have to write.
func (c *commits) Patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := c.times.longest()
	for _, one := range c.open {
		longest = max(longest, time.Since(one.began))
	}
	return min(max(writesAProposal*c.timing.write(), 2*longest, proposeTimeout), maxProposeTimeout)
}

// asked notes how long a proposal to the leader, another node, took.
func (c *commits) asked(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times.add(took)
}

// forget drops the times of commits: another leader has another disk.
func (c *commits) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times.all, c.took = nil, 0
}

// awaited reports whether steps stand still until all members know of an entry. They do for what is saved of a broken generation, too, but
// several members report that within a linger, and one write does for all.
func awaited(e Entry) bool {
	switch e.(type) {
	case SetPlan, SetMemberState, Substitute, Salvage, WantPause, Rollback, Blame:
		return true
	}
	return false
}

// serve takes a stream that a peer has opened: a request is answered, raft's go to its transport.
// It returns when nothing more comes on the stream.
func (n *Node) serve(ctx context.Context, peer plan.PeerID, s Stream) {
	voter := n.votes(peer)
	if !n.requests.take(peer, voter) {
		if ctx.Err() == nil {
			n.config.Logger.Warn("consensus: too many requests, stream refused", "peer", peer)
		}
		return
	}
	e := n.engine.Load()
	then, err := n.respond(ctx, peer, s, e)
	n.requests.release(peer, voter)
	if err != nil {
		n.config.Logger.Debug("consensus: stream refused", "peer", peer, "err", err)
	} else if then != nil {
		then()
	}
}

// votes reports whether a peer is known here as a voter or as the leader.
func (n *Node) votes(peer plan.PeerID) bool {
	leader, _, _ := n.Leader()
	s := n.State()
	if i := len(s.Vouchers) - 1; i >= 0 && slices.Contains(s.Vouchers[i].Voters, peer) {
		return true
	}
	return peer == leader || slices.Contains(n.Servers(), Server{Peer: peer, Voter: true})
}

// respond answers the request on a stream, which must come within requestTimeout. For a stream on which raft's messages
// follow it returns what takes or sends them, and leaves them unread.
func (n *Node) respond(ctx context.Context, peer plan.PeerID, s Stream, e *engine) (then func(), err error) {
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); err != nil {
		return nil, err
	}
	if first[0] == streamRaft || first[0] == streamFollow {
		if err := e.layer.same(s); err != nil {
			n.askSoon()
			return nil, err
		}
	}
	if first[0] == streamFollow {
		if then, err = e.admit(n, peer, s); err != nil || !stop() {
			return nil, err
		}
		return then, s.SetDeadline(time.Time{})
	}
	if first[0] == streamRaft {
		b, err := readMessage(s, nil, maxProofBytes)
		if err != nil {
			return nil, err
		}
		shown, err := e.transport.greet(peer, b)
		if err != nil || !stop() {
			return nil, err
		}
		return func() {
			if c, err := e.layer.track(s, peer, &shown); err == nil {
				e.transport.serve(c)
			}
		}, s.SetDeadline(time.Time{})
	}
	if first[0] != streamRequest {
		return nil, fmt.Errorf("%w stream: its first byte is %d", ErrMalformed, first[0])
	}
	q, err := readRequest(s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := n.handle(ctx, peer, q)
	s.SetDeadline(time.Now().Add(requestTimeout))
	_, err = s.Write(appendResponse(nil, r))
	return nil, err
}

// handle carries out a peer's request. A proposal that has a hop left is passed on to the leader, if it may count there:
// the leader would charge this node for another.
func (n *Node) handle(ctx context.Context, from plan.PeerID, q request) response {
	if q.op == opApplied {
		return response{codeDone, binary.LittleEndian.AppendUint64(nil, n.engine.Load().raft.AppliedIndex())}
	}
	switch q.op {
	case opVouch:
		return n.notary.sign(from, q.body)
	case opLook:
		b, err := json.Marshal(n.ownLook())
		if err != nil {
			return answer(err)
		}
		return response{codeDone, b}
	case opRecover:
		return n.Recoverer.sign(q.body)
	case opAdopt:
		return n.Recoverer.told(from, q.body)
	case opLineage:
		return n.Recoverer.answerLineage()
	}
	leads := n.engine.Load().raft.State() == raft.Leader
	s := n.State()
	if leads {
		p, err := n.quotas.open(n.author, s, from, q.body)
		if err != nil {
			return answer(err)
		}
		return answer(n.enter(ctx, p, q.body))
	}
	if err := n.quotas.take(from, len(q.body), false, time.Now()); err != nil {
		return answer(err)
	}
	if _, err := n.author.fresh(s, q.body); err != nil {
		return answer(err)
	}
	leader, _, _ := n.Leader()
	if q.hops == 0 || leader == "" || leader == n.self {
		return answer(errRetry)
	}
	r, err := n.ask(ctx, leader, request{op: opPropose, body: q.body})
	if err != nil {
		return answer(fmt.Errorf("%w: %w", errRetry, err))
	}
	return r
}
