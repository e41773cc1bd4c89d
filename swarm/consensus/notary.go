package consensus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// ownerVoucherEvery is how often the leader looks for an owner to sign who votes, where none did.
const ownerVoucherEvery = 30 * time.Second

// notary has vouchers signed and puts them into the log, on the leader. It signs those of other leaders.
type notary struct {
	node *Node
	// ownerAsked is when an owner was last looked for. The leader's loop owns it.
	ownerAsked time.Time
}

// keep sees to it that the log says who votes now, and by an owner where one is there.
func (y *notary) keep(ctx context.Context) error {
	s, voters, term := y.node.State(), votersOf(y.node.Servers()), plan.Term(y.node.engine.Load().raft.CurrentTerm())
	if len(s.Vouchers) == 0 {
		return y.vouch(ctx, voters)
	}
	newest := s.Vouchers[len(s.Vouchers)-1]
	if !slices.Equal(newest.Voters, voters) || term > newest.Term+maxTermRaise/2 {
		return y.vouch(ctx, voters)
	}
	if newest.byOwner() || len(s.ActiveOwners()) == 0 || time.Since(y.ownerAsked) < ownerVoucherEvery {
		return nil
	}
	y.ownerAsked = time.Now()
	v := Voucher{Number: newest.Number + 1, Term: term, From: voters, Voters: voters}
	if v.Signatures = y.gather(ctx, v, s.ActiveOwners()); !v.byOwner() {
		return nil
	}
	return y.commit(ctx, v)
}

// vouch has voters and owners sign who is to vote, and puts that into the log.
func (y *notary) vouch(ctx context.Context, voters []plan.PeerID) error {
	v, err := y.signed(ctx, voters)
	if err != nil {
		return err
	}
	return y.commit(ctx, v)
}

// signed has voters and owners sign who is to vote. Of the voters before, it takes the newest of whom a majority answers.
func (y *notary) signed(ctx context.Context, voters []plan.PeerID) (Voucher, error) {
	s := y.node.State()
	v := Voucher{Number: 1, Term: plan.Term(y.node.engine.Load().raft.CurrentTerm()), Voters: voters}
	before := [][]plan.PeerID{votersOf(y.node.Servers())}
	for _, o := range slices.Backward(s.Vouchers) {
		v.Number = max(v.Number, o.Number+1)
		before = append(before, o.Voters, o.From)
	}
	var err error
	for i, from := range before {
		if slices.ContainsFunc(before[:i], func(set []plan.PeerID) bool { return slices.Equal(set, from) }) {
			continue
		}
		v.From = from
		v.Signatures = y.gather(ctx, v, s.ActiveOwners())
		if err = v.check(); err == nil {
			return v, nil
		}
	}
	return v, fmt.Errorf("consensus: vouch for the voters %v: %w", voters, err)
}

// commit puts a voucher into the log.
func (y *notary) commit(ctx context.Context, v Voucher) error {
	p, err := y.node.author.sign(y.node.State(), Vouch{v})
	if err == nil {
		err = y.node.commit(ctx, p.encode())
	}
	if err != nil {
		return fmt.Errorf("consensus: vouch for the voters %v: %w", v.Voters, err)
	}
	return nil
}

// gather asks the voters before and the owners to sign, and returns what came within their answerTimeout. Those that the roster says
// are gone are not waited for where a majority of the voters has signed without them.
func (y *notary) gather(ctx context.Context, v Voucher, owners []plan.PeerID) []VoterMark {
	v.Signatures = nil
	body, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	asked := slices.Concat(v.From, owners)
	slices.Sort(asked)
	asked = slices.Compact(asked)
	ctx, cancel := context.WithTimeout(ctx, y.node.timing.answerTimeout(asked...))
	defer cancel()
	marks, late := make([]VoterMark, len(asked)), make([]VoterMark, len(asked))
	var asking, rest sync.WaitGroup
	state := y.node.State()
	for i, p := range asked {
		group, mark := &asking, &marks[i]
		if m, ok := state.Member(p); ok && m.State == Gone {
			group, mark = &rest, &late[i]
		}
		group.Go(func() {
			m, err := VoterMark{}, error(nil)
			if p == y.node.self {
				m, err = y.node.author.mark(v)
			} else {
				m, err = y.ask(ctx, p, body)
			}
			if err == nil {
				err = y.node.author.Verify(p, v.message(y.node.author.run), m.Signature)
			}
			if run := y.node.State(); run.Run != nil && !run.Owner(p) {
				m.Owner = nil // it was removed since
			}
			if err == nil && len(m.Owner) > 0 {
				err = y.node.author.owner(p, m.Owner)
			}
			if err != nil {
				y.node.config.Logger.Debug("consensus: no signature of the voters", "peer", p, "cause", err)
				return
			}
			m.Peer = p
			*mark = m
		})
	}
	asking.Wait()
	signed := v // which the others still read
	if signed.Signatures = chosen(v, marks, state.Owners); signed.byVoters() {
		cancel()
	}
	rest.Wait()
	return chosen(v, append(marks, late...), y.node.State().Owners)
}

// chosen leaves, of the marks that came, those of the voters and one proof of an owner: the owner's is enough for who
// knows it as one, the voters' are for who does not yet. It is the oldest owner's that came, whom most know; more would
// make what is shown large.
func chosen(v Voucher, marks []VoterMark, owners []plan.PeerID) []VoterMark {
	best := -1
	for i, m := range marks {
		if len(m.Owner) > 0 && (best < 0 || slices.Index(owners, m.Peer) < slices.Index(owners, marks[best].Peer)) {
			best = i
		}
	}
	var left []VoterMark
	for i, m := range marks {
		voted := len(m.Signature) > 0 && slices.Contains(v.From, m.Peer)
		if i != best {
			m.Owner = nil
		}
		if i == best || voted {
			left = append(left, m)
		}
	}
	return left
}

// ask asks a peer to sign.
func (y *notary) ask(ctx context.Context, p plan.PeerID, body []byte) (m VoterMark, err error) {
	r, err := y.node.ask(ctx, p, request{op: opVouch, body: body})
	if err == nil {
		err = r.err()
	}
	if err == nil {
		err = strict.Decode(r.body, &m)
	}
	return m, err
}

// mark signs a voucher as this node.
func (a *author) mark(v Voucher) (VoterMark, error) {
	signature, err := a.Sign(v.message(a.run))
	m := VoterMark{Peer: a.self, Signature: signature}
	if err == nil && a.owner(a.self, a.proof) == nil {
		m.Owner = a.proof
	}
	return m, err
}

// sign answers the leader that asks for this node's signature. What is signed must be a single change of the
// voters that this node knows, follow voters that were, and be the next voucher in the log here: one of a later number
// would make voters for as long as it stayed the newest.
func (y *notary) sign(from plan.PeerID, body []byte) response {
	leader, _, _ := y.node.Leader()
	if from != leader {
		return answer(fmt.Errorf("%w: %w: voucher of %s, which does not lead", ErrRejected, ErrForbidden, from.Short()))
	}
	var v Voucher
	if err := strict.Decode(body, &v); err != nil {
		return answer(fmt.Errorf("%w: %w voucher: %w", ErrRejected, ErrMalformed, err))
	}
	s, now := y.node.State(), votersOf(y.node.Servers())
	number, before := uint64(0), [][]plan.PeerID{now}
	for _, o := range s.Vouchers {
		number = o.Number
		before = append(before, o.From, o.Voters)
	}
	switch {
	case v.Term > plan.Term(y.node.engine.Load().raft.CurrentTerm()):
		return answer(fmt.Errorf("%w: %w: voucher of term %d, which is to come", ErrRejected, ErrForbidden, v.Term))
	case v.Number != number+1 || differing(v.Voters, now) > 1 || !slices.ContainsFunc(before, func(set []plan.PeerID) bool { return slices.Equal(set, v.From) }):
		return answer(fmt.Errorf("%w: voucher %d from %v to %v: the voters here are %v, after voucher %d", errRetry, v.Number, v.From, v.Voters, now, number))
	}
	m, err := y.node.author.mark(v)
	if err != nil {
		return answer(err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return answer(err)
	}
	return response{codeDone, b}
}

// differing counts the peers that are in one set alone.
func differing(a, b []plan.PeerID) (n int) {
	for _, p := range a {
		if !slices.Contains(b, p) {
			n++
		}
	}
	return n + len(b) - (len(a) - n)
}

// shown returns what this node shows of who votes, encoded.
func (y *notary) shown() []byte {
	b, err := json.Marshal(y.node.State().Vouchers)
	if err != nil || len(b) > maxProofBytes {
		return []byte("[]")
	}
	return b
}
