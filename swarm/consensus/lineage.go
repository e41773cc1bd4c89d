package consensus

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// RecoverAfter is how long none of the voters that are said to be dead may have been heard of.
const RecoverAfter = 10 * time.Minute

const (
	lineageIDBytes   = 32        // of a lineage's ID, in hex
	maxRecoveryBytes = 256 << 10 // with a signature of each of MaxMembers
)

// Recovery begins a new lineage of the log after a majority of the voters is lost for good: one node goes on alone
// with the newest log that the living hold. Nodes of two lineages exchange no messages of raft.
type Recovery struct {
	// Number is 1 for a run's first recovery and raised by each. Of two lineages the one with the higher number counts,
	// of two with the same number the one with the higher ID.
	Number uint64 `json:"number"`
	// After is the ID of the lineage before, empty for the one that the run was founded with.
	After string `json:"after,omitempty"`
	// By is the node whose log goes on. Its last entry is Index, of Term.
	By    plan.PeerID `json:"by"`
	Term  plan.Term   `json:"term"`
	Index uint64      `json:"index"`
	// Voters voted before; Dead are those of them that are said to be so. Both are sorted.
	Voters []plan.PeerID `json:"voters"`
	Dead   []plan.PeerID `json:"dead"`
	// Signatures are an owner's, or those of members that have not heard of the dead either.
	Signatures []VoterMark `json:"signatures,omitempty"`
}

// Recover is the first entry of a lineage after its leader's. The dead are gone, and the next incarnation begins.
type Recover struct {
	Recovery Recovery `json:"recovery"`
}

// message returns the bytes that are signed.
func (r Recovery) message(run string) []byte {
	b := append([]byte("pnode recovery\x00"), byte(len(run)))
	b = append(b, run...)
	for _, v := range []uint64{r.Number, uint64(r.Term), r.Index} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, set := range [][]plan.PeerID{{plan.PeerID(r.After)}, {r.By}, r.Voters, r.Dead} {
		b = append(b, byte(len(set)))
		for _, p := range set {
			b = append(append(b, byte(len(p))), p...)
		}
	}
	return b
}

// ID returns the name of the lineage that the recovery begins. It does not depend on who signed.
func (r Recovery) ID() string {
	sum := sha256.Sum256(r.message(""))
	return hex.EncodeToString(sum[:lineageIDBytes/2])
}

// check bounds a recovery, and wants the dead to be so many that the others are no majority. It does not look into the
// signatures.
func (r Recovery) check() error {
	for _, set := range [][]plan.PeerID{r.Voters, r.Dead} {
		ascending := slices.IsSorted(set) && len(slices.Compact(slices.Clone(set))) == len(set)
		if len(set) < 1 || len(set) > maxVoters || !ascending || slices.ContainsFunc(set, func(p plan.PeerID) bool { return !name(string(p)) }) {
			return fmt.Errorf("voters %v: want 1 to %d, each once and in order", set, maxVoters)
		}
	}
	stranger := func(p plan.PeerID) bool { return !slices.Contains(r.Voters, p) }
	_, hexadecimal := hex.DecodeString(r.After)
	switch {
	case r.Number == 0 || (r.Number == 1) != (r.After == "") || r.After != "" && (len(r.After) != lineageIDBytes || hexadecimal != nil):
		return fmt.Errorf("number %d after lineage %q: the first is 1, after none", r.Number, r.After)
	case !name(string(r.By)) || slices.Contains(r.Dead, r.By) || slices.ContainsFunc(r.Dead, stranger):
		return fmt.Errorf("by %s, dead %v of the voters %v", r.By.Short(), r.Dead, r.Voters)
	case len(r.Voters)-len(r.Dead) >= majority(len(r.Voters)):
		return fmt.Errorf("%d of %d voters are dead, and the others a majority", len(r.Dead), len(r.Voters))
	case len(r.Signatures) > MaxMembers:
		return fmt.Errorf("%d signatures, at most %d", len(r.Signatures), MaxMembers)
	}
	for i, m := range r.Signatures {
		if !name(string(m.Peer)) || len(m.Signature) != SignatureBytes || len(m.Owner) > maxOwnerBytes {
			return fmt.Errorf("a signature of %d bytes with a proof of %d", len(m.Signature), len(m.Owner))
		}
		if slices.ContainsFunc(r.Signatures[:i], func(o VoterMark) bool { return o.Peer == m.Peer }) {
			return fmt.Errorf("%s signs twice", m.Peer.Short())
		}
	}
	return nil
}

// majority returns how many of n voters are one.
func majority(n int) int { return n/2 + 1 }

// strong reports whether whoever has the state s must believe a recovery whose signatures hold: an owner has signed it, or
// more than half of the members. Without that it counts with nodes alone that have not heard of the dead themselves. Who was lost by s and
// has signed lives, and is a member with it: a voter that went on alone counts the others as gone.
func (r Recovery) strong(s State) bool {
	signed, members := 0, s.present()
	for _, mark := range r.Signatures {
		if _, removed := s.Revocation(mark.Peer); removed {
			continue
		}
		if s.Owner(mark.Peer) {
			return true
		}
		m, ok := s.Member(mark.Peer)
		if !ok || m.State == Gone && m.Reason == ReasonLeft {
			continue
		}
		if signed++; m.State == Gone {
			members++
		}
	}
	return signed >= majority(members)
}

// recovered returns why a recovery's signatures do not hold; nil if they do.
func (a *author) recovered(r Recovery) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("%w: recovery %d: %w", ErrForbidden, r.Number, err)
	}
	if len(r.Signatures) == 0 {
		return fmt.Errorf("%w: recovery %d: nobody has signed it", ErrForbidden, r.Number)
	}
	for _, m := range r.Signatures {
		if err := a.Verify(m.Peer, r.message(a.run), m.Signature); err != nil {
			return fmt.Errorf("%w: recovery %d: %w", ErrForbidden, r.Number, err)
		}
	}
	return nil
}

func (e Recover) apply(s State) (State, error) {
	r := e.Recovery
	if err := r.check(); err != nil {
		return s, fmt.Errorf("recover: %w", err)
	}
	before := lineage{Recovery: s.Recovery}
	switch {
	case s.Run == nil:
		return s, errNoRun
	case before.id() == r.ID():
		return s, nil
	case r.Number != before.number()+1 || r.After != before.id():
		return s, fmt.Errorf("recover: lineage %d after %q, the log is of %d, %q: %w", r.Number, r.After, before.number(), before.id(), ErrStale)
	}
	s.Recovery = &r
	if len(s.Partings) < plan.MaxPartings {
		s.Partings = append(slices.Clip(s.Partings), plan.Parting{Recovery: r.ID(), Generation: s.Plan.Generation})
	}
	s.Incarnation++
	s.Epoch++
	s.Vouchers = nil // who votes begins anew with who goes on
	for _, p := range r.Dead {
		if m, ok := s.Member(p); ok && m.State != Gone {
			m.State, m.Reason, m.Since = Gone, "the run was recovered without it", s.Epoch
			s = s.withMember(m).forget()
		}
	}
	return s, nil
}

// lineage says which one a node's log is of. The zero value is the one that a run is founded with.
type lineage struct {
	Recovery *Recovery `json:"recovery,omitempty"`
	// Strong is whether the node had to believe the recovery, by the log that it had then.
	Strong bool `json:"strong,omitempty"`
	// Index is the last entry of its log that was heard of.
	Index uint64 `json:"index,omitempty"`
	// Pending says what still has to be done with the log of the lineage before.
	Pending conversion `json:"pending,omitempty"`
}

// conversion says what a node does with its log when it changes to another lineage.
type conversion string

// The log is kept where it ends before that of the lineage, so that raft brings what is missing; it is discarded where
// it may hold other entries; and who recovers the run makes itself the only voter.
const (
	kept      conversion = ""
	discarded conversion = "discard"
	founded   conversion = "found"
)

// id returns the lineage's ID, empty for the one that a run is founded with.
func (l lineage) id() string {
	if l.Recovery == nil {
		return ""
	}
	return l.Recovery.ID()
}

func (l lineage) number() uint64 {
	if l.Recovery == nil {
		return 0
	}
	return l.Recovery.Number
}

// before reports whether another lineage counts in place of this one.
func (l lineage) before(o lineage) bool {
	return l.number() < o.number() || l.number() == o.number() && l.id() < o.id()
}

// conversion returns what becomes of a node's log, whose last entry is index of term, when it changes from lineage l to
// next. A log that is no newer than that of the node that goes on holds no committed entry that this one lacks (Raft, section
// 5.4.1): it may be kept.
func (l lineage) conversion(next lineage, self plan.PeerID, term plan.Term, index uint64) conversion {
	r := next.Recovery
	switch {
	case r == nil || r.After != l.id():
		return discarded
	case r.By == self:
		return founded
	case newer(term, index, r.Term, r.Index):
		return discarded
	}
	return kept
}

// newer reports whether a log that ends with index of term is newer than one that ends with the other.
func newer(term plan.Term, index uint64, other plan.Term, otherIndex uint64) bool {
	return term > other || term == other && index > otherIndex
}

// lineageStore keeps a node's lineage in its KV.
type lineageStore struct {
	kv  KV
	mu  sync.Mutex // guards now
	now lineage
}

func (s *lineageStore) get() lineage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// load reads the lineage.
func (s *lineageStore) load() error {
	b, found, err := s.kv.Get([]byte{prefixLineage})
	if err != nil || !found {
		return err
	}
	l := lineage{}
	if err = strict.Decode(b, &l); err == nil && l.Recovery != nil {
		err = l.Recovery.check()
	}
	if err != nil {
		return fmt.Errorf("%w: lineage of the log: %w", ErrCorrupt, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = l
	return nil
}

// put writes the lineage down.
func (s *lineageStore) put(l lineage) error {
	b, err := json.Marshal(l)
	if err == nil {
		err = s.kv.Write([]Change{{Key: []byte{prefixLineage}, Value: b}})
	}
	if err != nil {
		return fmt.Errorf("consensus: store the lineage of the log: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = l
	return nil
}

// discard deletes the log, its snapshot, the term and the vote of the lineage before.
func (s *lineageStore) discard() error {
	var changes []Change
	err := s.kv.Scan(nil, false, func(key, _ []byte) bool {
		switch key[0] {
		case prefixLog, prefixStable, prefixHead, prefixSnapshot:
			changes = append(changes, Change{Key: slices.Clone(key), Delete: true})
		}
		return true
	})
	if err == nil {
		slices.Reverse(changes) // the head of the snapshot before its pieces, and the log from its end
		slices.SortStableFunc(changes, func(a, b Change) int { return headFirst(a) - headFirst(b) })
		err = writeInParts(s.kv, changes)
	}
	if err != nil {
		return fmt.Errorf("consensus: discard the log of before: %w", err)
	}
	return nil
}

func headFirst(c Change) int {
	if c.Key[0] == prefixHead {
		return 0
	}
	return 1
}

// Look tells a node that asks whether the run can be recovered how the log ends here, and who of the voters is silent.
type Look struct {
	Lineage string `json:"lineage,omitempty"`
	Number  uint64 `json:"number,omitempty"`
	// Leader is who leads as far as is known there.
	Leader plan.PeerID `json:"leader,omitempty"`
	// Term and Index are of the last entry.
	Term  plan.Term `json:"term"`
	Index uint64    `json:"index"`
	// Silent is for how many milliseconds the voters that are known there were not heard of, at most since it began to listen.
	Silent []Silence `json:"silent,omitempty"`
}

// Silence is how long a voter was not heard of.
type Silence struct {
	Peer   plan.PeerID `json:"peer"`
	Millis int64       `json:"millis"`
}

// silent returns for how long a voter was not heard of; a voter that the node does not know was not heard there either.
func (l Look) silent(p plan.PeerID) (time.Duration, bool) {
	i := slices.IndexFunc(l.Silent, func(s Silence) bool { return s.Peer == p })
	if i < 0 {
		return 0, false
	}
	return time.Duration(l.Silent[i].Millis) * time.Millisecond, true
}

func decodeLook(b []byte) (l Look, err error) {
	if err = strict.Decode(b, &l); err == nil && len(l.Silent) > maxVoters {
		err = fmt.Errorf("%d voters, at most %d", len(l.Silent), maxVoters)
	}
	for _, s := range l.Silent {
		if s.Millis < 0 || s.Millis > int64(100*365*24*time.Hour/time.Millisecond) {
			err = fmt.Errorf("silent for %d ms", s.Millis)
		}
	}
	if err != nil {
		return l, fmt.Errorf("%w look: %w", ErrMalformed, err)
	}
	return l, nil
}

// ErrNotLost is wrapped by the refusal of a recovery: the majority is not known to be lost, or not for long enough.
var ErrNotLost = errors.New("the run is not recovered")

// agree returns the recovery of a run of state s, whose voters are known, from what the nodes that answer say, self
// among them. The error wraps ErrNotLost and says why there is none.
func agree(s State, now lineage, voters []plan.PeerID, self plan.PeerID, looks map[plan.PeerID]Look) (Recovery, error) {
	if s.Run == nil || len(voters) == 0 {
		return Recovery{}, fmt.Errorf("%w: this node does not have the run's log; recover it on a node that was in the run before", ErrNotLost)
	}
	if s.Finished {
		return Recovery{}, fmt.Errorf("%w: it is finished", ErrNotLost)
	}
	r := Recovery{Number: now.number() + 1, After: now.id(), By: self, Term: looks[self].Term, Index: looks[self].Index, Voters: voters}
	for _, p := range sortedPeers(looks) {
		l := looks[p]
		switch {
		case l.Leader != "":
			return Recovery{}, fmt.Errorf("%w: %s says that %s leads: the run goes on by itself", ErrNotLost, s.NameOf(p), s.NameOf(l.Leader))
		case l.Lineage != now.id():
			continue // it changes over, or this node does
		case newer(l.Term, l.Index, r.Term, r.Index):
			r.By, r.Term, r.Index = p, l.Term, l.Index
		}
	}
	for _, p := range voters {
		if _, answers := looks[p]; !answers {
			r.Dead = append(r.Dead, p)
		}
	}
	if alive := len(voters) - len(r.Dead); alive >= majority(len(voters)) {
		return Recovery{}, fmt.Errorf("%w: %d of %d voters answer, which is a majority: the run goes on by itself", ErrNotLost, alive, len(voters))
	}
	for _, d := range r.Dead {
		for _, p := range sortedPeers(looks) {
			if silent, known := looks[p].silent(d); known && silent < RecoverAfter {
				return Recovery{}, fmt.Errorf("%w: %s has not heard of %s for only %s of %s: try again in %s, or start %s again", ErrNotLost,
					s.NameOf(p), s.NameOf(d), plan.Duration(silent.Round(time.Second)), plan.Duration(RecoverAfter), plan.Duration((RecoverAfter - silent).Round(time.Second)), s.NameOf(d))
			}
		}
	}
	return r, nil
}

// sortedPeers returns who has said something, in order.
func sortedPeers(looks map[plan.PeerID]Look) []plan.PeerID {
	peers := make([]plan.PeerID, 0, len(looks))
	for p := range looks {
		peers = append(peers, p)
	}
	slices.Sort(peers)
	return peers
}
