package consensus

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"pnode/planner/plan"
	"pnode/swarm/version"
)

// Signer signs as this node, and checks the signatures of others: a peer ID holds its public key.
type Signer interface {
	// Sign returns SignatureBytes bytes.
	Sign(message []byte) ([]byte, error)
	Verify(peer plan.PeerID, message, signature []byte) error
}

// SignatureBytes is the length of a signature: Ed25519 (RFC 8032).
const SignatureBytes = 64

const proposalVersion = 2

// errIncarnation marks an entry that was signed for another incarnation of the run. Its author signs again
// when it knows the new one.
var errIncarnation = errors.New("signed for another incarnation of the run")

// proposal is an entry as it stands in the log: signed by the node that proposed it.
type proposal struct {
	author plan.PeerID
	// incarnation is that of the run as the author knew it, 0 without a log. Only for what comes before the log
	// may it be one of before.
	incarnation uint64
	// counter is raised with each proposal of the author, over its restarts too: no proposal counts twice.
	counter   uint64
	signature []byte
	entry     Entry
	body      []byte // the encoded entry
}

// message returns what is signed: the run and everything but the signature.
func (p proposal) message(run string) []byte {
	b := []byte("pnode log entry\x00")
	for _, s := range []string{run, string(p.author)} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = binary.LittleEndian.AppendUint64(b, p.incarnation)
	b = binary.LittleEndian.AppendUint64(b, p.counter)
	return append(b, p.body...)
}

// encode returns the bytes of the log: version, length and name of the author, incarnation, counter,
// signature, entry. Integers are little-endian.
func (p proposal) encode() []byte {
	b := append([]byte{proposalVersion, byte(len(p.author))}, p.author...)
	b = binary.LittleEndian.AppendUint64(b, p.incarnation)
	b = binary.LittleEndian.AppendUint64(b, p.counter)
	return append(append(b, p.signature...), p.body...)
}

// decodeProposal reads what encode wrote. The signature is not checked.
func decodeProposal(b []byte) (proposal, error) {
	p, err := decodeHeader(b)
	if err != nil {
		return p, err
	}
	p.entry, err = DecodeEntry(p.body)
	return p, err
}

// decodeHeader reads a proposal but for its entry, which stays encoded.
func decodeHeader(b []byte) (proposal, error) {
	var p proposal
	if len(b) < 2 || len(b) > MaxEntryBytes+maxProposalHeader {
		return p, fmt.Errorf("%w entry: %d bytes", ErrMalformed, len(b))
	}
	if b[0] != proposalVersion {
		return p, fmt.Errorf("%w: %w", ErrMalformed, version.Unknown("an entry of the log", int(b[0]), proposalVersion))
	}
	n, b := int(b[1]), b[2:]
	if n == 0 || n > maxName || len(b) < n+16+SignatureBytes {
		return p, fmt.Errorf("%w entry: an author of %d bytes and %d bytes behind", ErrMalformed, n, len(b))
	}
	p.author, b = plan.PeerID(b[:n]), b[n:]
	p.incarnation, p.counter = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	p.signature, p.body = b[16:16+SignatureBytes], b[16+SignatureBytes:]
	return p, nil
}

const maxProposalHeader = 2 + maxName + 16 + SignatureBytes

// author signs this node's proposals.
type author struct {
	Signer
	self plan.PeerID
	run  string
	// owner returns why a peer is no owner by a proof; nil if it is. proof is this node's.
	owner func(peer plan.PeerID, proof []byte) error
	proof []byte

	mu   sync.Mutex // guards last and held
	last uint64     // counter of the newest proposal, or the process epoch
	held signatures
}

// signatures remembers the newest proposals whose signatures held, by the hash of their bytes: who takes a proposal sees it again
// when it is committed. The zero value is ready.
type signatures struct {
	order [512][sha256.Size]byte // a ring
	next  int
	of    map[[sha256.Size]byte]struct{}
}

// add remembers one in place of the oldest.
func (s *signatures) add(hash [sha256.Size]byte) {
	if s.of == nil {
		s.of = make(map[[sha256.Size]byte]struct{}, len(s.order))
	}
	delete(s.of, s.order[s.next])
	s.order[s.next], s.of[hash] = hash, struct{}{}
	s.next = (s.next + 1) % len(s.order)
}

// sign returns an entry signed for the state's incarnation. The counter begins with the epoch of the process, which is
// larger at each start, so that a node needs to remember none.
func (a *author) sign(s State, e Entry) (proposal, error) {
	body, err := EncodeEntry(e)
	if err != nil {
		return proposal{}, err
	}
	m, _ := s.Member(a.self)
	a.mu.Lock()
	a.last = max(a.last, m.Counter) + 1
	p := proposal{author: a.self, incarnation: s.Incarnation, counter: a.last, entry: e, body: body}
	a.mu.Unlock()
	p.signature, err = a.Sign(p.message(a.run))
	if err == nil && len(p.signature) != SignatureBytes {
		err = fmt.Errorf("a signature of %d bytes, want %d", len(p.signature), SignatureBytes)
	}
	if err != nil {
		return proposal{}, fmt.Errorf("consensus: sign %T: %w", e, err)
	}
	return p, nil
}

// open reads a proposal and checks the signatures on it.
func (a *author) open(b []byte) (proposal, error) {
	p, err := decodeProposal(b)
	if err != nil {
		return p, err
	}
	if err := a.verify(p, b); err != nil {
		return p, fmt.Errorf("%w: %T that %s is said to propose: %w", ErrForbidden, p.entry, plan.PeerID(p.author).Short(), err)
	}
	switch e := p.entry.(type) {
	case Vouch:
		return p, a.vouched(e.Voucher)
	case Recover:
		return p, a.recovered(e.Recovery)
	}
	return p, nil
}

// fresh reads a proposal, and returns why it can never be carried out: its signature does not hold, or it is spent here.
func (a *author) fresh(s State, body []byte) (proposal, error) {
	p, err := a.open(body)
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return p, s.spent(p)
}

// verify checks the signature of a proposal's author, once for the same bytes.
func (a *author) verify(p proposal, b []byte) error {
	hash := sha256.Sum256(b)
	a.mu.Lock()
	_, held := a.held.of[hash]
	a.mu.Unlock()
	if held {
		return nil
	}
	if err := a.Verify(p.author, p.message(a.run), p.signature); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, held := a.held.of[hash]; !held { // else two would leave the ring for one
		a.held.add(hash)
	}
	return nil
}

// window is how many proposals of one author may overtake one another on their way to the leader.
const window = 64

// counted returns a proposal's author with the proposal's counter noted, and refuses one that was there before. Whoever is no member has
// no counter: it returns none.
func (s State) counted(p proposal) (Member, error) {
	m, ok := s.Member(p.author)
	if !ok {
		return Member{}, nil
	}
	switch {
	case p.counter > m.Counter:
		if ahead := p.counter - m.Counter; ahead < window {
			m.Window = m.Window<<ahead | 1
		} else {
			m.Window = 1
		}
		m.Counter = p.counter
	case m.Counter-p.counter >= window || m.Window>>(m.Counter-p.counter)&1 != 0:
		return Member{}, fmt.Errorf("%w: %w: %T of %s was proposed before (number %d, the newest is %d)", ErrRejected, ErrForbidden, p.entry, p.author.Short(), p.counter, m.Counter)
	default:
		m.Window |= 1 << (m.Counter - p.counter)
	}
	return m, nil
}

// spent returns why a proposal cannot be carried out any more, whoever brings it: it was proposed before, or for an
// incarnation of before. What is spent for a state is so for every later one.
func (s State) spent(p proposal) error {
	if p.incarnation < s.Incarnation && !first(p.entry) {
		return fmt.Errorf("%w: %d, it is at %d", errIncarnation, p.incarnation, s.Incarnation)
	}
	_, err := s.counted(p)
	return err
}

// first reports whether an entry is one of those that a node proposes before it has the log: to join, and to let
// in who brings the log.
func first(e Entry) bool {
	switch e.(type) {
	case Join, Redeem:
		return true
	}
	return false
}

// carryOut returns the state after a signed proposal that the leader of a term has put into the log at a time. Unlike
// Apply it changes the state with a refusal too: the proposal is counted, and time has passed.
func (s State) carryOut(p proposal, term plan.Term, at time.Time) (State, error) {
	s.Departures.Clock = s.Departures.Clock.After(term, at)
	if p.incarnation > s.Incarnation || p.incarnation < s.Incarnation && !first(p.entry) {
		return s, fmt.Errorf("%w: %d, it is at %d", errIncarnation, p.incarnation, s.Incarnation)
	}
	if _, err := s.counted(p); err != nil {
		return s, err
	}
	next, err := s, Authorize(s, Author{p.author, term}, p.entry)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRejected, err)
	} else {
		next, err = Apply(s, p.entry)
	}
	m, twice := next.counted(p) // as the entry leaves the author, who may have joined by it
	switch i, member := next.find(p.author); {
	case twice != nil:
		return next, twice
	case !member:
		return next, err
	case len(s.Members) > 0 && &next.Members[0] == &s.Members[0]:
		return next.withMember(m), err
	default: // the entry has made a roster, which nobody else has so far
		next.Members[i] = m
		return next, err
	}
}

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

// open reads a proposal that a peer has sent to this node, the leader, and takes it on the debtor's account. What is said to be by a member
// whose account is empty is refused unread: the signature and the entry are most of what it costs.
func (q *quotas) open(a *author, s State, from plan.PeerID, body []byte) (proposal, error) {
	if said, err := decodeHeader(body); err == nil {
		if _, member := s.Member(said.author); member {
			if err := q.left(said.author, len(body), time.Now()); err != nil {
				return said, err
			}
		}
	}
	p, refusal := a.fresh(s, body)
	by, joins := debtor(s, from, p, refusal)
	if err := q.take(by, len(body), joins, time.Now()); err != nil {
		return p, err
	}
	return p, refusal
}

// debtor returns on whose account the leader takes a proposal, and whether that one joins: the member's that has signed it,
// through whomever it comes, and else the sender's. Anybody can make keys, and send again what another has signed.
func debtor(s State, from plan.PeerID, p proposal, refusal error) (by plan.PeerID, joins bool) {
	if _, member := s.Member(p.author); !member || refusal != nil {
		return from, false
	}
	_, joins = p.entry.(Join)
	return p.author, joins
}

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
		return fmt.Errorf("%w: %s joins too often: once in %s is taken", errRetry, peer.Short(), plan.Duration(joinEvery))
	}
	if !one.proposals.AllowN(now, 1) || !one.bytes.AllowN(now, bytes) {
		return tooMuch(peer)
	}
	return nil
}

// left returns why it is too early for another proposal of a peer, and counts nothing.
func (q *quotas) left(peer plan.PeerID, bytes int, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.of[peer]
	if one != nil && (one.proposals.TokensAt(now) < 1 || one.bytes.TokensAt(now) < float64(bytes)) {
		return tooMuch(peer)
	}
	return nil
}

func tooMuch(peer plan.PeerID) error {
	return fmt.Errorf("%w: too much is proposed by %s: at most %d entries and %d KiB a second are taken", errRetry, peer.Short(), proposalsPerS, proposalBytesPerS>>10)
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
