package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// Bounds of what a node shows of itself when it opens a stream of raft.
const (
	// maxVouchers bounds those that are remembered: a node whose voters are of before them finds its way back only by
	// one that an owner has signed.
	maxVouchers = 64
	// maxVoters bounds the voters of a voucher: Voters of MaxMembers, and those that are being replaced.
	maxVoters       = 2 * 7
	maxVoucherBytes = 8 << 10
	maxProofBytes   = 512 << 10 // 64 vouchers of 28 names, 15 signatures and an owner's proof in base64 are 440 KiB
	maxOwnerBytes   = 2 << 10   // of the proof that a peer is an owner
)

var errNoOwner = errors.New("nothing shows that it is an owner")

// Voucher says who votes, to nodes that do not have the log: that the voters From are followed by Voters. An owner
// signed it, or a majority of From. It is made before the change, so that no voter ever comes without one.
type Voucher struct {
	// Number is 1 for the first and raised by each. A voucher with a lower number than one that a node has
	// in its log is out of date there.
	Number uint64 `json:"number"`
	// Term is the leader's that made it.
	Term plan.Term `json:"term"`
	// From and Voters are sorted.
	From       []plan.PeerID `json:"from"`
	Voters     []plan.PeerID `json:"voters"`
	Signatures []VoterMark   `json:"signatures,omitempty"`
}

// VoterMark is one peer's signature of a voucher. Owner is set where the peer is an owner of the run: it proves that.
type VoterMark struct {
	Peer      plan.PeerID `json:"peer"`
	Signature []byte      `json:"signature"`
	Owner     []byte      `json:"owner,omitempty"`
}

// Vouch puts a voucher into the log.
type Vouch struct {
	Voucher Voucher `json:"voucher"`
}

// message returns the bytes that are signed.
func (v Voucher) message(run string) []byte {
	b := append([]byte("pnode voters\x00"), byte(len(run)))
	b = append(b, run...)
	b = binary.LittleEndian.AppendUint64(b, v.Number)
	b = binary.LittleEndian.AppendUint64(b, uint64(v.Term))
	for _, set := range [][]plan.PeerID{v.From, v.Voters} {
		b = append(b, byte(len(set)))
		for _, p := range set {
			b = append(append(b, byte(len(p))), p...)
		}
	}
	return b
}

// names reports whether a peer votes before or after the change.
func (v Voucher) names(p plan.PeerID) bool {
	return slices.Contains(v.From, p) || slices.Contains(v.Voters, p)
}

// owners returns the owners that are said to have signed.
func (v Voucher) owners() (owners []plan.PeerID) {
	for _, m := range v.Signatures {
		if len(m.Owner) > 0 {
			owners = append(owners, m.Peer)
		}
	}
	return owners
}

// byOwner reports whether an owner is said to have signed.
func (v Voucher) byOwner() bool { return len(v.owners()) > 0 }

// byVoters reports whether a majority of the voters before is said to have signed.
func (v Voucher) byVoters() bool {
	votes := 0
	for _, m := range v.Signatures {
		if slices.Contains(v.From, m.Peer) {
			votes++
		}
	}
	return votes >= len(v.From)/2+1
}

// check bounds a voucher, and wants marks of a majority or of an owner. It does not look into the signatures.
func (v Voucher) check() error {
	for _, set := range [][]plan.PeerID{v.From, v.Voters} {
		ascending := slices.IsSorted(set) && len(slices.Compact(slices.Clone(set))) == len(set)
		if len(set) < 1 || len(set) > maxVoters || !ascending || slices.ContainsFunc(set, func(p plan.PeerID) bool { return !name(string(p)) }) {
			return fmt.Errorf("voters %v: want 1 to %d, each once and in order", set, maxVoters)
		}
	}
	if v.Number == 0 {
		return errors.New("number 0, the first is 1")
	}
	for i, m := range v.Signatures {
		switch {
		case len(m.Signature) != SignatureBytes || len(m.Owner) > maxOwnerBytes || i >= maxVoters+1:
			return fmt.Errorf("%d signatures, one of %d bytes with a proof of %d", len(v.Signatures), len(m.Signature), len(m.Owner))
		case slices.ContainsFunc(v.Signatures[:i], func(o VoterMark) bool { return o.Peer == m.Peer }):
			return fmt.Errorf("%s signs twice", m.Peer.Short())
		case !slices.Contains(v.From, m.Peer) && len(m.Owner) == 0:
			return fmt.Errorf("%s signs, which is neither a voter nor an owner", m.Peer.Short())
		}
	}
	if !v.byOwner() && !v.byVoters() {
		return fmt.Errorf("%d of %d voters sign, and no owner", len(v.Signatures), len(v.From))
	}
	return nil
}

func (e Vouch) apply(s State) (State, error) {
	v, number := e.Voucher, uint64(0)
	if err := v.check(); err != nil {
		return s, fmt.Errorf("vouch: %w", err)
	}
	followed := len(s.Vouchers) == 0 && slices.Equal(v.From, v.Voters) || v.byOwner()
	for _, o := range s.Vouchers {
		number = o.Number
		followed = followed || slices.Equal(v.From, o.From) || slices.Equal(v.From, o.Voters)
	}
	stranger := slices.IndexFunc(v.Signatures, func(m VoterMark) bool { return len(m.Owner) > 0 && s.Run != nil && !s.Owner(m.Peer) })
	switch {
	case stranger >= 0:
		return s, fmt.Errorf("vouch: %s is no owner of this run any more", s.NameOf(v.Signatures[stranger].Peer))
	case v.Number == number && slices.Equal(v.Voters, s.Vouchers[len(s.Vouchers)-1].Voters):
		return s, nil
	case v.Number != number+1:
		return s, fmt.Errorf("vouch %d after %d: %w", v.Number, number, ErrStale)
	case !followed:
		return s, fmt.Errorf("vouch %d: it follows %v, who never were the voters", v.Number, v.From)
	}
	if slices.ContainsFunc(v.owners(), func(o plan.PeerID) bool { return len(s.Owners) == 0 || o == s.Owners[0] }) {
		s.Vouchers = nil // an old log, too, has this one as an owner; of others it may not know yet
	}
	s.Vouchers = append(slices.Clone(s.Vouchers), v)
	s.Vouchers = s.Vouchers[max(0, len(s.Vouchers)-maxVouchers):]
	for _, p := range v.Voters {
		if m, ok := s.Member(p); ok && !m.Voted && m.Stood >= StandingCheckpoints {
			m.Voted = true
			s = s.withMember(m)
		}
	}
	return s, nil
}

// vouched returns why a voucher's signatures do not hold; nil if they do.
func (a *author) vouched(v Voucher) error {
	if err := v.check(); err != nil {
		return fmt.Errorf("%w: voucher %d: %w", ErrForbidden, v.Number, err)
	}
	for _, m := range v.Signatures {
		if err := a.Verify(m.Peer, v.message(a.run), m.Signature); err != nil {
			return fmt.Errorf("%w: voucher %d: %w", ErrForbidden, v.Number, err)
		}
		if len(m.Owner) == 0 {
			continue
		}
		if err := a.owner(m.Peer, m.Owner); err != nil {
			return fmt.Errorf("%w: voucher %d: %s is no owner: %w", ErrForbidden, v.Number, m.Peer.Short(), err)
		}
	}
	return nil
}

// trust holds what a node knows of the voters without a proof.
type trust struct {
	// Sets are the voters known here, as sorted lists. None are known to a node that joins.
	Sets [][]plan.PeerID
	// Newest is the number of the newest voucher known here, Term the newest term.
	Newest uint64
	Term   plan.Term
	// Logged is set where the log here says who the owners are: nobody else counts as one, whatever it shows.
	// Who used the secret of an invite for owners that has ended has a good proof, and is not in any log.
	Logged bool
	Owners []plan.PeerID
	// Removed are the peers of whom the log here says that they were removed: as owners they make nobody a voter.
	Removed []plan.PeerID
}

// owner reports whether a peer that proves to be an owner counts as one here.
func (t trust) owner(p plan.PeerID) bool {
	return !slices.Contains(t.Removed, p) && (!t.Logged || slices.Contains(t.Owners, p))
}

// proof says what a peer has shown to be one of the voters.
type proof struct {
	// Newest is the number of the newest voucher that holds; 0 is no proof. Term is its term.
	Newest uint64
	Term   plan.Term
	// Owners are those whose word it rests on: it holds until one of them is removed.
	Owners []plan.PeerID
	// Names are the voters before and after that voucher.
	Names []plan.PeerID
}

// of returns what the same vouchers show of another peer.
func (p proof) of(peer plan.PeerID) proof {
	if !slices.Contains(p.Names, peer) {
		return proof{}
	}
	return p
}

// follow goes from the voters known here along vouchers to the newest, and wants to find the peer there. A voucher
// holds if an owner has signed it who is one here, or a majority of voters that are known or were found on the way. Only
// an owner takes the term far ahead.
func (a *author) follow(peer plan.PeerID, shown []Voucher, known trust) (proof, error) {
	found, votes := proof{Term: known.Term}, false
	for _, v := range shown {
		owners := slices.DeleteFunc(v.owners(), func(o plan.PeerID) bool { return !known.owner(o) })
		voted := v.byVoters() && slices.ContainsFunc(known.Sets, func(set []plan.PeerID) bool { return slices.Equal(set, v.From) })
		switch {
		case v.Number <= max(known.Newest, found.Newest) || len(owners) == 0 && !voted:
			continue
		case v.Term > found.Term+maxTermRaise && len(owners) == 0:
			return proof{}, fmt.Errorf("%w: voucher %d is of term %d, and only an owner vouches for one so far after %d", ErrForbidden, v.Number, v.Term, found.Term)
		}
		if err := a.vouched(v); err != nil {
			return proof{}, err
		}
		known.Sets = append(slices.Clone(known.Sets), v.From, v.Voters)
		found = proof{Newest: v.Number, Term: max(found.Term, v.Term), Owners: slices.Concat(found.Owners, owners), Names: slices.Concat(v.From, v.Voters)}
		votes = v.names(peer)
	}
	if !votes {
		return proof{}, fmt.Errorf("%w: %s shows nothing that makes it a voter, to who knows the voters here", ErrForbidden, peer.Short())
	}
	return found, nil
}

// decodeVouchers reads what a peer shows.
func decodeVouchers(b []byte) ([]Voucher, error) {
	var shown []Voucher
	if len(b) > maxProofBytes {
		return nil, fmt.Errorf("%w vouchers: %d bytes, at most %d are accepted", ErrMalformed, len(b), maxProofBytes)
	}
	if err := strict.Decode(b, &shown); err != nil {
		return nil, fmt.Errorf("%w vouchers: %w", ErrMalformed, err)
	}
	if len(shown) > maxVouchers {
		return nil, fmt.Errorf("%w vouchers: %d, at most %d are accepted", ErrMalformed, len(shown), maxVouchers)
	}
	return shown, nil
}

// votersOf returns the voters among servers, sorted.
func votersOf(servers []Server) []plan.PeerID {
	var voters []plan.PeerID
	for _, s := range servers {
		if s.Voter {
			voters = append(voters, s.Peer)
		}
	}
	slices.Sort(voters)
	return voters
}
