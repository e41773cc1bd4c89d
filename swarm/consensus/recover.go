package consensus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

const (
	// lookEvery is the time between two questions to the others of which lineage they are, while no leader is known;
	// lookSeldom while one is.
	lookEvery  = 5 * time.Second
	lookSeldom = 30 * time.Second
	// looksAtOnce bounds whom a node asks besides the voters while no leader is known, and it need not be its turn to recover the
	// run; looksSeldom whom it asks while one is.
	looksAtOnce = 64
	looksSeldom = 8
	// turn is the time by which the nodes of a run that recover it by themselves try one after the other.
	turn = 15 * time.Second
	// signedFor is how long a node that has signed a recovery signs no other one.
	signedFor = 30 * time.Second
)

// Recoverer has this node recover the run, and change over to the lineage of others that did. What changes the log runs on
// the leader's loop.
type Recoverer struct {
	node  *Node
	found chan lineage // to change over to
	wake  chan struct{}

	mu         sync.Mutex // guards what follows
	signed     string     // the ID of the recovery that was signed last
	signedAt   time.Time
	last       *ChangeOver
	apart      plan.PeerID // a member that goes on with the run in a lineage that this node does not have to believe
	tellsApart bool        // people know of that one
}

// Recover goes on with the run without the majority of voters that is lost, from the newest log that the living hold. It is
// refused, with ErrNotLost, unless nobody who answers has heard of the lost voters for RecoverAfter. Where others have
// recovered the run already and this node did not have to believe them, it follows them now. It returns once the node that
// goes on has begun to, which may be another one.
func (y *Recoverer) Recover(ctx context.Context) (Recovery, error) {
	n := y.node
	s, err := y.Logged()
	if err != nil {
		return Recovery{}, err
	}
	looks := y.lookAround(ctx, y.node.contacts())
	for _, p := range sortedPeers(looks) {
		if leader, _, _ := n.Leader(); leader == "" && looks[p].Leader != "" && looks[p].Lineage != n.lineage.get().id() {
			return y.follow(ctx, p)
		}
	}
	looks[n.self] = y.ownLook()
	r, err := agree(s, n.lineage.get(), votersOf(n.Servers()), n.self, looks)
	if err != nil {
		return r, err
	}
	r.Signatures = y.gather(ctx, r, sortedPeers(looks))
	if err := y.goOn(ctx, r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrNotLost, err)
	}
	n.config.Logger.Info("consensus: the run is recovered", "by", s.NameOf(r.By), "without", r.Dead, "index", r.Index)
	return r, y.await(ctx, func() bool { return (lineage{Recovery: n.State().Recovery}).id() == r.ID() })
}

// goOn has the node that is to go on do so, and this one follow it. After an error nobody goes on.
func (y *Recoverer) goOn(ctx context.Context, r Recovery) error {
	self := y.node.self
	if r.By != self {
		if err := y.tell(ctx, r.By, r); err != nil {
			return err
		}
	}
	err := y.take(self, r) // also where another one goes on: this node asks others only now and then of which lineage they are
	if err != nil && r.By != self {
		y.node.config.Logger.Info("consensus: another node goes on, and this one does not follow it at once", "by", r.By, "cause", err)
		return nil
	}
	return err
}

// follow takes this node over to the lineage of a member, on its operator's word, and signs the recovery: others need not be
// told again where this node is an owner's.
func (y *Recoverer) follow(ctx context.Context, p plan.PeerID) (Recovery, error) {
	theirs, err := y.lineageOf(ctx, p)
	if err != nil {
		return Recovery{}, err
	}
	if now := y.node.lineage.get(); !now.before(theirs) {
		return Recovery{}, fmt.Errorf("%w: %s goes on, and this node comes back to it by itself", ErrNotLost, y.node.State().NameOf(p))
	}
	r := *theirs.Recovery
	if err := y.node.author.recovered(r); err != nil {
		return r, err
	}
	signature, err := y.node.author.Sign(r.message(y.node.author.run))
	if err != nil {
		return r, err
	}
	if len(r.Signatures) < MaxMembers && !slices.ContainsFunc(r.Signatures, func(m VoterMark) bool { return m.Peer == y.node.self }) {
		r.Signatures = append(slices.Clone(r.Signatures), VoterMark{Peer: y.node.self, Signature: signature})
	}
	y.changeTo(lineage{Recovery: &r, Strong: true, Index: r.Index})
	return r, y.await(ctx, func() bool { return y.node.lineage.get().id() == r.ID() }) // its log comes once this node has joined again
}

// await blocks until ok, which is asked at each change.
func (y *Recoverer) await(ctx context.Context, ok func() bool) error {
	for {
		changed := y.node.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-y.node.ended:
			return y.node.over()
		case <-ctx.Done():
			return fmt.Errorf("consensus: the recovery is under way, and this node has not heard of its end: %w", ctx.Err())
		}
	}
}

// apartFrom returns a member that goes on with the run apart from this node, "" for none.
func (y *Recoverer) apartFrom() plan.PeerID {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.apart
}

// ownLook returns what this node says of its log and of the voters.
func (y *Recoverer) ownLook() Look {
	n := y.node
	leader, _, _ := n.Leader()
	now := n.lineage.get()
	l := Look{Lineage: now.id(), Number: now.number(), Leader: leader}
	l.Term, l.Index = y.end()
	for _, p := range votersOf(n.Servers()) {
		if p != n.self {
			l.Silent = append(l.Silent, Silence{p, y.heardAgo(p).Milliseconds()})
		}
	}
	return l
}

// heardAgo returns how long ago a peer was heard of, at most since this node began to listen.
func (y *Recoverer) heardAgo(p plan.PeerID) time.Duration {
	n := y.node
	if n.config.Heard == nil {
		return 0
	}
	return max(0, n.config.Heard(p))
}

// whom returns the members to ask now: a few, each time others, while a leader is known; voters and some others while none is.
func (y *Recoverer) whom(q Quorum) []plan.PeerID {
	all := y.node.contacts()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if q.Leader != "" {
		return all[:min(len(all), looksSeldom)]
	}
	others := slices.DeleteFunc(all, func(p plan.PeerID) bool { return slices.Contains(q.Voters, p) })
	voters := slices.DeleteFunc(slices.Clone(q.Voters), func(p plan.PeerID) bool { return p == y.node.self })
	return append(voters, others[:min(len(others), looksAtOnce)]...)
}

// lookBefore asks members whose turn to recover the run is before this node's, besides those that were asked, until it is not this node's turn for
// as many as answered, or no more are left. It adds what they know to looks.
func (y *Recoverer) lookBefore(ctx context.Context, q Quorum, asked []plan.PeerID, looks map[plan.PeerID]Look) {
	rest := slices.DeleteFunc(y.node.contacts(), func(p plan.PeerID) bool { return p > y.node.self || slices.Contains(asked, p) })
	slices.Sort(rest)
	for n := looksAtOnce; len(rest) > 0 && y.due(q, looks); n *= 4 {
		next := rest[:min(n, len(rest))]
		maps.Copy(looks, y.lookAround(ctx, next))
		rest = rest[len(next):]
	}
}

// lookAround asks other members what they know, and returns what came within readyTimeout.
func (y *Recoverer) lookAround(ctx context.Context, asked []plan.PeerID) map[plan.PeerID]Look {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	looks := map[plan.PeerID]Look{}
	for _, p := range asked {
		asking.Go(func() {
			r, err := y.node.ask(ctx, p, request{op: opLook})
			if err == nil {
				err = r.err()
			}
			var l Look
			if err == nil {
				l, err = decodeLook(r.body)
			}
			if err == nil {
				mu.Lock()
				looks[p] = l
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return looks
}

// gather has the living sign a recovery, this node among them, and returns what came within readyTimeout. One owner's proof
// is enough.
func (y *Recoverer) gather(ctx context.Context, r Recovery, living []plan.PeerID) []VoterMark {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	marks := make([]VoterMark, len(living))
	var asking sync.WaitGroup
	for i, p := range living {
		asking.Go(func() {
			var answered response
			if p == y.node.self {
				answered = y.sign(body)
			} else if answered, err = y.node.ask(ctx, p, request{op: opRecover, body: body}); err != nil {
				return
			}
			var m VoterMark
			err := answered.err()
			if err == nil {
				err = strict.Decode(answered.body, &m)
			}
			if err == nil {
				err = y.node.author.Verify(p, r.message(y.node.author.run), m.Signature)
			}
			if err != nil {
				y.node.config.Logger.Info("consensus: no signature for the recovery", "peer", p, "cause", err)
				return
			}
			marks[i] = VoterMark{Peer: p, Signature: m.Signature}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(marks, func(m VoterMark) bool { return m.Peer == "" })
}

// sign answers a member that asks for this node's signature under a recovery: this node says that it has no leader
// either, has not heard of the dead for RecoverAfter, and has no newer log.
func (y *Recoverer) sign(body []byte) response {
	var r Recovery
	err := strict.Decode(body, &r)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return answer(fmt.Errorf("%w: %w recovery: %w", ErrRejected, ErrMalformed, err))
	}
	if err := y.witness(r); err != nil {
		return answer(fmt.Errorf("%w: %w", ErrRejected, err))
	}
	y.mu.Lock()
	busy := y.signed != r.ID() && time.Since(y.signedAt) < signedFor
	if !busy {
		y.signed, y.signedAt = r.ID(), time.Now()
	}
	y.mu.Unlock()
	if busy {
		return answer(fmt.Errorf("%w: it has just signed another recovery", errRetry))
	}
	var m VoterMark
	m.Peer = y.node.self
	m.Signature, err = y.node.author.Sign(r.message(y.node.author.run))
	if err != nil {
		return answer(err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return answer(err)
	}
	return response{codeDone, b}
}

// witness returns why this node does not say of the voters what a recovery says.
func (y *Recoverer) witness(r Recovery) error {
	leader, _, _ := y.node.Leader()
	now := y.node.lineage.get()
	term, index := y.end()
	switch {
	case leader != "":
		return fmt.Errorf("%w: %s leads", ErrNotLost, y.node.State().NameOf(leader))
	case r.After != now.id() || r.Number != now.number()+1:
		return fmt.Errorf("%w: it follows lineage %d, this node is of %d", ErrNotLost, r.Number-1, now.number())
	case newer(term, index, r.Term, r.Index):
		return fmt.Errorf("%w: the log here is newer", ErrNotLost)
	}
	for _, d := range r.Dead {
		if d == y.node.self || y.heardAgo(d) < RecoverAfter {
			return fmt.Errorf("%w: %s was heard of within %s", ErrNotLost, y.node.State().NameOf(d), plan.Duration(RecoverAfter))
		}
	}
	return nil
}

// tell shows a member a recovery.
func (y *Recoverer) tell(ctx context.Context, p plan.PeerID, r Recovery) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	answered, err := y.node.ask(ctx, p, request{op: opAdopt, body: body})
	if err != nil {
		return err
	}
	return answered.err()
}

// told answers a member that shows a recovery.
func (y *Recoverer) told(from plan.PeerID, body []byte) response {
	var r Recovery
	if err := strict.Decode(body, &r); err != nil {
		return answer(fmt.Errorf("%w: %w recovery: %w", ErrRejected, ErrMalformed, err))
	}
	if err := y.take(from, r); err != nil {
		return answer(fmt.Errorf("%w: %w", ErrRejected, err))
	}
	return response{code: codeDone}
}

// take changes over to the lineage of a recovery that a member shows, or returns why not. The node that is to go on wants
// to have seen itself what it says. Others believe an owner or most members; and anybody, where they have seen the same.
func (y *Recoverer) take(from plan.PeerID, r Recovery) error {
	if err := y.node.author.recovered(r); err != nil {
		return err
	}
	now := y.node.lineage.get()
	s, err := y.Logged()
	if err != nil {
		return err
	}
	next := lineage{Recovery: &r, Strong: r.strong(s), Index: r.Index}
	leader, _, _ := y.node.Leader()
	switch {
	case now.id() == next.id():
		return nil
	case !now.before(next):
		return fmt.Errorf("%w: lineage %d is out of date, this node is of %d", ErrNotLost, r.Number, now.number())
	case r.By == y.node.self:
		term, index := y.end()
		if err := y.witness(r); err != nil {
			return err
		}
		if term != r.Term || index != r.Index {
			return fmt.Errorf("%w: the log here has changed since", ErrNotLost)
		}
	case s.Run == nil: // it joins, and believes who has let it in
	case !next.Strong:
		if err := y.witness(r); err != nil {
			return fmt.Errorf("%w: neither an owner nor most members have signed recovery %d, and %w", ErrForbidden, r.Number, err)
		}
	case leader != "" && from != r.By:
		return fmt.Errorf("%w: %s leads here: %s has to show recovery %d itself", ErrForbidden, s.NameOf(leader), s.NameOf(r.By), r.Number)
	}
	y.changeTo(next)
	return nil
}

// changeTo has the leader's loop change over, unless it is about to already.
func (y *Recoverer) changeTo(l lineage) {
	select {
	case y.found <- l:
	default:
	}
}

// run asks the others of which lineage they are until ctx ends. It tells those of one that is over, changes over where
// this node's own is, and recovers the run where the node is to do that by itself.
func (y *Recoverer) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-y.wake:
		case <-tick.C:
		}
		q := y.node.Quorum()
		if q.Leader != "" && time.Since(asked) < lookSeldom {
			continue
		}
		asked = time.Now()
		whom := y.whom(q)
		looks := y.lookAround(ctx, whom)
		y.lookBefore(ctx, q, whom, looks)
		for _, p := range sortedPeers(looks) {
			y.compare(ctx, p, looks[p])
		}
		if y.due(q, looks) {
			recovering, cancel := context.WithTimeout(ctx, signedFor) // who is to go on may be lost before it does
			if _, err := y.Recover(recovering); err != nil && ctx.Err() == nil {
				y.node.config.Logger.Info("consensus: the run is not recovered yet", "cause", err)
			}
			cancel()
		}
	}
}

// due reports whether this node is to recover the run by itself now: those that answer try one after the other.
func (y *Recoverer) due(q Quorum, looks map[plan.PeerID]Look) bool {
	before := 0
	for p := range looks {
		if p < y.node.self {
			before++
		}
	}
	return y.overdue(q, before)
}

// overdue reports whether the run is lost for so long that this node is to recover it by itself, after so many others.
func (y *Recoverer) overdue(q Quorum, before int) bool {
	after := y.node.config.RecoverAfter
	return after != 0 && !q.LostSince.IsZero() && len(q.Voters) > 0 && time.Since(q.LostSince) >= after+time.Duration(before)*turn
}

// compare acts on what a member says of its lineage.
func (y *Recoverer) compare(ctx context.Context, p plan.PeerID, l Look) {
	now := y.node.lineage.get()
	if l.Lineage == now.id() {
		y.noteApart(p, false, "")
		return
	}
	theirs, err := y.lineageOf(ctx, p)
	follow := "`pnode recover` here has this node follow it"
	switch {
	case err != nil:
		y.node.config.Logger.Debug("consensus: lineage", "of", p, "cause", err)
	case theirs.id() == now.id():
	case now.before(theirs):
		err = y.take(p, *theirs.Recovery)
	case !now.Strong && l.Leader != "" && slices.Contains(now.Recovery.Dead, p):
		// It was said to be dead, and nobody had to believe that.
		theirs.Index = l.Index
		y.changeTo(theirs)
	default:
		err = y.tell(ctx, p, *now.Recovery)
		follow = "`pnode recover` there has it follow this node"
	}
	if err != nil && ctx.Err() == nil {
		y.node.config.Logger.Debug("consensus: a part of the run goes on apart", "peer", p, "cause", err)
		y.noteApart(p, l.Leader != "", follow)
	}
}

// noteApart takes in whether a member goes on with the run in a lineage that does not come together with this node's. People are told at the
// second look, and what to do: at the first one the word of who recovered the run may be on its way.
func (y *Recoverer) noteApart(p plan.PeerID, apart bool, follow string) {
	y.mu.Lock()
	before := y.apart
	switch {
	case apart:
		y.apart = p
	case before == p:
		y.apart, y.tellsApart = "", false
	}
	tell := apart && before == p && !y.tellsApart
	y.tellsApart = y.tellsApart || tell
	y.mu.Unlock()
	if name := y.node.State().NameOf(p); tell {
		y.node.config.Logger.Warn(name + " goes on with the run apart from this node, and neither need believe the other: " + follow + "; what the one that follows did apart does not count any more")
	}
}

// lineageOf asks a member for its lineage.
func (y *Recoverer) lineageOf(ctx context.Context, p plan.PeerID) (l lineage, err error) {
	r, err := y.node.ask(ctx, p, request{op: opLineage})
	if err == nil {
		err = r.err()
	}
	if err == nil {
		err = strict.Decode(r.body, &l.Recovery)
	}
	if err == nil && l.Recovery != nil {
		err = l.Recovery.check()
	}
	return l, err
}

// answerLineage answers a member that asks for this node's lineage.
func (y *Recoverer) answerLineage() response {
	b, err := json.Marshal(y.node.lineage.get().Recovery)
	if err != nil {
		return answer(err)
	}
	return response{codeDone, b}
}

// askSoon has run ask the others soon: one of another lineage was here.
func (y *Recoverer) askSoon() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}
