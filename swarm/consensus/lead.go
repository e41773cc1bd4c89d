package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

const (
	reconcileInterval = time.Second
	// readyLag is how many entries a server may be behind and still be given a vote.
	readyLag = 64
	// readyTimeout bounds how long a member's answer to a short question is waited for; type timing raises it for those
	// that are far away.
	readyTimeout = time.Second
)

// lead keeps the servers right while this node leads, and everywhere hears only those who may speak of raft.
func (n *Node) lead(ctx context.Context) {
	ticker := time.NewTicker(reconcileInterval)
	defer ticker.Stop()
	var vacant <-chan time.Time
	for ctx.Err() == nil {
		changed := n.Changed()
		select {
		case next := <-n.Recoverer.found:
			if err := n.Recoverer.changeOver(next); err != nil {
				n.fail(err)
				return
			}
		default:
		}
		n.machine.caughtUp(n.engine.Load().raft.AppliedIndex())
		n.engine.Load().layer.prune(func(c *conn) error { return n.takes(c.peer, *c.shown) })
		if n.engine.Load().raft.State() == raft.Leader {
			if err := n.reconcile(ctx); err != nil && ctx.Err() == nil {
				n.config.Logger.Debug("consensus: servers not changed", "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ticker.C:
		case next := <-n.Recoverer.found:
			n.Recoverer.changeTo(next)
		case p := <-n.endings:
			n.follower.Ended(p)
			leader, _, _ := n.Leader()
			if before, stands := n.succession.due(p, leader, n.self, votersOf(n.Servers()), time.Now()); stands {
				vacant = time.After(time.Duration(before) * n.timing.succeedAfter())
			}
		case <-vacant:
			n.stand(ctx)
		}
	}
}

// reconcile makes the changes that Membership asks for, one after the other. A new leader
// first waits until its state holds everything that is committed.
func (n *Node) reconcile(ctx context.Context) error {
	if err := n.takeOver(ctx); err != nil {
		return err
	}
	if err := n.seal(ctx); err != nil {
		return err
	}
	if err := n.notary.keep(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		a := n.next(ctx)
		if a.Kind == Rest {
			return n.notary.keep(ctx)
		}
		if err := n.carryOut(ctx, a); err != nil {
			return fmt.Errorf("consensus: %s %s: %w", a.Kind, a.Peer, err)
		}
		n.config.Logger.Info("consensus: servers changed", "action", a.Kind, "peer", a.Peer, "reason", a.Reason)
		if a.Kind == Transfer {
			return nil
		}
	}
	return ctx.Err()
}

// next returns the next change of the servers. Before one that takes a vote it asks the voters whether they answer: raft
// notices only after rpcTimeout who does not, and anew in each term, and without that vote the others might
// be no majority.
func (n *Node) next(ctx context.Context) Action {
	n.roll.meet(n.State().Members)
	v := n.roll.servers(ctx)
	a := Membership(v)
	if a.Kind != Demote && a.Kind != Transfer {
		return a
	}
	var asking sync.WaitGroup
	var deaf sync.Map // of voters
	for _, s := range v.Servers {
		if s.Voter && s.Peer != n.self {
			asking.Go(func() {
				if !n.Answers(ctx, s.Peer) {
					deaf.Store(s.Peer, true)
				}
			})
		}
	}
	asking.Wait()
	v.Silent = func(p plan.PeerID) time.Duration {
		if _, ok := deaf.Load(p); ok {
			return max(n.Silence(p), 1)
		}
		return n.Silence(p)
	}
	return Membership(v)
}

// takeOver says in the log, once in a term, that this node leads. Once that is applied, so is everything that earlier
// leaders committed.
func (n *Node) takeOver(ctx context.Context) error {
	term := plan.Term(n.engine.Load().raft.CurrentTerm())
	n.mu.Lock()
	done := n.led == term
	n.mu.Unlock()
	if done {
		return nil
	}
	p, err := n.author.sign(n.State(), Lead{Peer: n.self, Term: term})
	if err == nil {
		err = n.commit(ctx, p.encode())
	}
	if err != nil {
		return fmt.Errorf("consensus: take over term %d: %w", term, err)
	}
	n.mu.Lock()
	n.led = term
	n.mu.Unlock()
	n.broadcast()
	return nil
}

// Silence returns how long ago a member was last heard of, 0 when it answers raft's heartbeats or, without a vote, questions: not all are asked.
// Only the leader knows; elsewhere it is 0.
func (n *Node) Silence(p plan.PeerID) time.Duration {
	if !slices.Contains(n.Servers(), Server{Peer: p, Voter: true}) {
		return n.roll.silent(p)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silence.of(p, time.Now())
}

// Answers reports whether a member answers a question at once, on a stream of its own. Ask it before giving up a member
// that was not heard of.
func (n *Node) Answers(ctx context.Context, p plan.PeerID) bool {
	_, ok := n.applied(ctx, p)
	return ok
}

// applied returns the index that a peer has applied last, if it answers within its answerTimeout.
func (n *Node) applied(ctx context.Context, p plan.PeerID) (index uint64, ok bool) {
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, n.timing.answerTimeout(p))
	defer cancel()
	r, err := n.ask(asking, p, request{op: opApplied})
	if ctx.Err() == nil {
		n.timing.asked(p, time.Since(began), err)
	}
	if err != nil || r.code != codeDone || len(r.body) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(r.body), true
}

// withheld returns why a member gets no vote that was about to when the leader looked; nil where it does, and for other changes.
func withheld(s State, a Action) error {
	if m, _ := s.Member(a.Peer); a.Kind == Promote && (m.State == Gone || !m.stays() && !AllGo(s)) {
		return fmt.Errorf("it is %s by now", m.State)
	}
	return nil
}

// carryOut makes one change and waits until it is committed.
// A change of the voters is vouched for before, and no voucher names who is not to vote any more. Signatures and the log may each take a
// while, after which it is asked again.
func (n *Node) carryOut(ctx context.Context, a Action) error {
	if err := withheld(n.State(), a); err != nil {
		return err
	}
	voters := votersOf(n.Servers())
	switch a.Kind {
	case Promote:
		voters = append(voters, a.Peer)
		slices.Sort(voters)
	case Demote:
		voters = slices.DeleteFunc(voters, func(p plan.PeerID) bool { return p == a.Peer })
	}
	if a.Kind == Promote || a.Kind == Demote {
		v, err := n.notary.signed(ctx, voters)
		if err == nil {
			err = withheld(n.State(), a)
		}
		if a.Kind == Promote {
			defer n.roll.promotes(a.Peer)()
		}
		if err == nil {
			err = n.notary.commit(ctx, v)
		}
		if err == nil {
			err = withheld(n.State(), a)
		}
		if err == nil && a.Kind == Promote && n.commits.moves(a.Peer) {
			err = errors.New("what becomes of it is on its way into the log")
		}
		if err != nil {
			return err
		}
	}
	id, address := raft.ServerID(a.Peer), raft.ServerAddress(a.Peer)
	switch a.Kind {
	case Promote:
		n.mu.Lock()
		n.silence.added(a.Peer, time.Now())
		n.mu.Unlock()
		n.vacancy.note(false, 0)
		return n.engine.Load().raft.AddVoter(id, address, 0, enqueueTimeout).Error()
	case Demote: // it stays a server until it has heard of that
		n.vacancy.note(n.Silence(a.Peer) > 0, n.engine.Load().raft.CurrentTerm())
		return n.engine.Load().raft.DemoteVoter(id, 0, enqueueTimeout).Error()
	case Remove:
		n.hears(ctx, a.Peer)
		err := n.engine.Load().raft.RemoveServer(id, 0, enqueueTimeout).Error()
		if err == nil {
			n.mu.Lock()
			n.silence.removed(a.Peer)
			n.mu.Unlock()
		}
		return err
	case Transfer:
		return n.engine.Load().raft.LeadershipTransferToServer(id, address).Error()
	}
	return fmt.Errorf("unknown action %q", a.Kind)
}

// hears waits until a server has the newest configuration that is known here, and knows that it is committed: raft sends
// one that is removed nothing more where a message to it is under way. It waits no longer than for a short answer, and not for who is silent.
func (n *Node) hears(ctx context.Context, p plan.PeerID) {
	configured := n.engine.Load().raft.GetConfiguration().Index()
	ctx, cancel := context.WithTimeout(ctx, n.timing.answerTimeout(p))
	defer cancel()
	for n.Silence(p) == 0 {
		if applied, ok := n.applied(ctx, p); !ok || applied >= configured {
			return
		}
		select {
		case <-time.After(commitTimeout): // the time between two messages to a server
		case <-ctx.Done():
			return
		}
	}
}

// vacancy remembers in which term this leader took the vote of a dead voter, until it changes another vote. Its methods may be called
// concurrently.
type vacancy struct{ term atomic.Uint64 }

// note takes in a change of the votes, which takes that of a dead voter or does not.
func (v *vacancy) note(dead bool, term uint64) {
	if !dead {
		term = 0
	}
	v.term.Store(term)
}

// stands reports whether that was in this term.
func (v *vacancy) stands(term uint64) bool { return term != 0 && v.term.Load() == term }

// Leave takes this node out of the run: it becomes draining, hands leadership and vote
// over, and is gone. The last node of a run keeps its vote and stays as it is, so that the
// run can be resumed from it. When ctx ends before another node could take over the error
// says so, and leaving all the same endangers the quorum. Close the node afterwards.
func (n *Node) Leave(ctx context.Context) error {
	s := n.State()
	m, ok := s.Member(n.self)
	if !ok || m.State == Gone || s.present() == 1 {
		return nil
	}
	drain := SetMemberState{Peer: n.self, ProcessEpoch: m.ProcessEpoch, State: Draining, Reason: "it is leaving"}
	if err := n.Propose(ctx, drain); err != nil {
		return fmt.Errorf("consensus: leave: %w", err)
	}
	if err := voteless(ctx, n); err != nil {
		return err
	}
	err := n.Propose(ctx, SetMemberState{Peer: n.self, ProcessEpoch: m.ProcessEpoch, State: Gone, Reason: ReasonLeft})
	if err != nil && !errors.Is(err, ErrStale) {
		return fmt.Errorf("consensus: leave: %w", err)
	}
	known, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	// A leader that saw this node active gave it a vote before the log had that it is gone: what came before that entry is here with it.
	if err := Await(known, n, func(s State) bool {
		m, _ := s.Member(n.self)
		return m.State == Gone
	}); err != nil {
		n.config.Logger.Debug("consensus: nobody showed this node that it is gone", "err", err)
	}
	return voteless(ctx, n)
}

// voteless blocks until a node that leaves has no vote by the newest configuration that came there.
func voteless(ctx context.Context, n *Node) error {
	for {
		changed := n.Changed()
		if !slices.Contains(n.Servers(), Server{Peer: n.self, Voter: true}) {
			return nil
		}
		select {
		case <-changed:
		case <-n.ended:
			return n.over()
		case <-ctx.Done():
			return fmt.Errorf("consensus: leave: no other node could take over the vote: %s: %w", n.unheard(), ctx.Err())
		}
	}
}

// unheard describes whose answer a change of the servers waits for.
func (n *Node) unheard() string {
	leader, _, _ := n.Leader()
	if leader == "" {
		return "no leader is elected"
	}
	if leader != n.self {
		return fmt.Sprintf("the leader %s has not handed it over", leader)
	}
	var silent []string
	for _, m := range n.State().Members {
		if m.State != Gone && n.Silence(m.Peer) > 0 {
			silent = append(silent, string(m.Peer))
		}
	}
	if len(silent) == 0 {
		return "the others have not caught up with the log"
	}
	return "no answer from " + strings.Join(silent, ", ")
}
