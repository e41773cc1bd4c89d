package consensus

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/bearer"
)

const (
	// MaxGrants bounds the invites that are remembered. When there are more, those that ended without a peer
	// that is still in the run are forgotten.
	MaxGrants = 1024
	// MaxOpenGrants bounds those of one owner that still let somebody in.
	MaxOpenGrants = 256
	// MaxInviteTime bounds the time to come in by an invite.
	MaxInviteTime = 366 * 24 * time.Hour
	// MaxInviteUses bounds the peers of one invite.
	MaxInviteUses = 1024

	maxSignedBytes = 2 << 10
)

// Invite makes an invite known to all nodes: from then on every door lets peers in by it, and the log counts
// them. Its times are Unix seconds.
type Invite struct {
	Serial uint64 `json:"serial"`
	// Issuer is the owner that makes it, at the time Made.
	Issuer plan.PeerID `json:"issuer"`
	Made   int64       `json:"made"`
	// Owner says that its peers become owners.
	Owner        bool  `json:"owner,omitempty"`
	Uses         int   `json:"uses"`
	RedeemBefore int64 `json:"redeem_before"`
	// Bearer is the public key whose private half binds peers to the invite.
	Bearer []byte `json:"bearer"`
	// Signed is the invite as admission signs it: what a newcomer gets, and what the bearer key binds to.
	Signed []byte `json:"signed"`
}

// Redeem notes, before a newcomer is let in, that it comes by the invite of this serial. Who knows the invite's
// secret has signed that.
type Redeem struct {
	Serial    uint64      `json:"serial"`
	Peer      plan.PeerID `json:"peer"`
	Signature []byte      `json:"signature"`
}

// Revoke removes a peer from the run for good and ends the invite that it came by, or ends an invite, of which Members removes also the peers that
// came by it.
type Revoke struct {
	By      plan.PeerID `json:"by"`
	Peer    plan.PeerID `json:"peer,omitempty"`
	Serial  uint64      `json:"serial,omitempty"`
	Members bool        `json:"members,omitempty"`
	Reason  string      `json:"reason,omitempty"`
}

// Grant is an invite and the peers that came by it, in the order of coming.
type Grant struct {
	Serial       uint64      `json:"serial"`
	Issuer       plan.PeerID `json:"issuer,omitempty"`
	Made         int64       `json:"made,omitempty"`
	Owner        bool        `json:"owner,omitempty"`
	Uses         int         `json:"uses,omitempty"`
	RedeemBefore int64       `json:"redeem_before,omitempty"`
	Bearer       []byte      `json:"bearer,omitempty"`
	Signed       []byte      `json:"signed,omitempty"`
	// Revoked says that nobody new comes in by it.
	Revoked bool          `json:"revoked,omitempty"`
	Peers   []plan.PeerID `json:"peers"`
}

// Revocation says which owner removed a peer from the run, and why.
type Revocation struct {
	Peer   plan.PeerID `json:"peer"`
	By     plan.PeerID `json:"by"`
	Reason string      `json:"reason,omitempty"`
}

// The reasons for which a peer does not come in by an invite. They are told to the newcomer.
var (
	errUnknownInvite = errors.New("no owner of this run has made the invite, or it has been forgotten since it ended")
	errUsedUp        = errors.New("the invite is used up")
	errInviteRevoked = errors.New("the invite was revoked")
	errInviteEnded   = errors.New("the invite has expired")
)

// Expired reports whether the time to come in by the invite is over.
func (g Grant) Expired(now time.Time) bool { return now.Unix() >= g.RedeemBefore }

// Grant finds an invite.
func (s State) Grant(serial uint64) (Grant, bool) {
	if i, ok := s.grant(serial); ok {
		return s.Grants[i], true
	}
	return Grant{}, false
}

func (s State) grant(serial uint64) (int, bool) {
	return slices.BinarySearchFunc(s.Grants, serial, func(g Grant, serial uint64) int { return cmp.Compare(g.Serial, serial) })
}

// Owner reports whether a peer is an owner of the run.
func (s State) Owner(peer plan.PeerID) bool { return slices.Contains(s.Owners, peer) }

// Admitted reports whether a peer belongs to the run: it founded it, or came by an invite, and was not removed.
func (s State) Admitted(peer plan.PeerID) bool {
	if s.Owner(peer) {
		return true
	}
	_, revoked := s.Revocation(peer)
	return !revoked && slices.ContainsFunc(s.Grants, func(g Grant) bool { return slices.Contains(g.Peers, peer) })
}

// letIn reports whether a peer may join: it is known from before, an invite has let it in, or it founds the run.
func (s State) letIn(peer plan.PeerID) bool {
	_, known := s.Member(peer)
	return known || s.Admitted(peer) || len(s.Owners) == 0
}

// Revocation finds out who removed a peer from the run, and why.
func (s State) Revocation(peer plan.PeerID) (Revocation, bool) {
	if i := slices.IndexFunc(s.Revoked, func(r Revocation) bool { return r.Peer == peer }); i >= 0 {
		return s.Revoked[i], true
	}
	return Revocation{}, false
}

func (e Invite) apply(s State) (State, error) {
	i, known := s.grant(e.Serial)
	grant := Grant{
		Serial: e.Serial, Issuer: e.Issuer, Made: e.Made, Owner: e.Owner, Uses: e.Uses, RedeemBefore: e.RedeemBefore,
		Bearer: e.Bearer, Signed: e.Signed,
	}
	switch {
	case !name(string(e.Issuer)) || len(e.Bearer) != ed25519.PublicKeySize || len(e.Signed) == 0 || len(e.Signed) > maxSignedBytes:
		return s, fmt.Errorf("invite: issuer of %d, key of %d and signed form of %d bytes, want 1 to %d, %d, and 1 to %d",
			len(e.Issuer), len(e.Bearer), len(e.Signed), maxName, ed25519.PublicKeySize, maxSignedBytes)
	case e.Uses < 1 || e.Uses > MaxInviteUses:
		return s, fmt.Errorf("invite: %d uses, want 1 to %d", e.Uses, MaxInviteUses)
	case e.Made < 0 || e.RedeemBefore-e.Made > int64(MaxInviteTime/time.Second):
		return s, fmt.Errorf("invite: made at %d, to come in by it before %d: want at most %d seconds between", e.Made, e.RedeemBefore, int64(MaxInviteTime/time.Second))
	case known && s.Grants[i].Issuer == e.Issuer && bytes.Equal(s.Grants[i].Signed, e.Signed):
		return s, nil
	case known:
		return s, fmt.Errorf("invite: another one has serial %016x", e.Serial)
	case s.openGrants(e.Issuer, e.Made) >= MaxOpenGrants:
		return s, fmt.Errorf("invite: %s has %d open invites, and no more are taken; revoke some", s.NameOf(e.Issuer), MaxOpenGrants)
	}
	if len(s.Grants) >= MaxGrants {
		s.Grants = slices.DeleteFunc(slices.Clone(s.Grants), func(g Grant) bool {
			return !g.open(e.Made) && !slices.ContainsFunc(g.Peers, s.Admitted)
		})
		i, _ = s.grant(e.Serial)
	}
	if len(s.Grants) >= MaxGrants {
		return s, fmt.Errorf("invite: the run has %d invites, and cannot remember more", MaxGrants)
	}
	s.Grants = slices.Insert(slices.Clone(s.Grants), i, grant)
	return s, nil
}

// open reports whether an invite lets somebody in at a time.
func (g Grant) open(at int64) bool {
	return !g.Revoked && len(g.Peers) < g.Uses && g.RedeemBefore > at
}

// openGrants counts the invites of a peer that let somebody in at a time.
func (s State) openGrants(issuer plan.PeerID, at int64) (n int) {
	for _, g := range s.Grants {
		if g.Issuer == issuer && g.open(at) {
			n++
		}
	}
	return n
}

func (e Redeem) apply(s State) (State, error) {
	if !name(string(e.Peer)) {
		return s, fmt.Errorf("redeem: peer ID of %d bytes, want 1 to %d", len(e.Peer), maxName)
	}
	if r, revoked := s.Revocation(e.Peer); revoked {
		return s, fmt.Errorf("redeem: %s", s.Removal(r))
	}
	i, known := s.grant(e.Serial)
	switch {
	case !known:
		return s, fmt.Errorf("redeem: %w", errUnknownInvite)
	case slices.Contains(s.Grants[i].Peers, e.Peer):
		return s, nil
	case s.Grants[i].Revoked:
		return s, fmt.Errorf("redeem: %w", errInviteRevoked)
	case len(s.Grants[i].Peers) >= s.Grants[i].Uses:
		return s, fmt.Errorf("redeem: %w: it was for %d", errUsedUp, s.Grants[i].Uses)
	case s.bindings() >= MaxBindings:
		return s, fmt.Errorf("redeem: %d peers have come in already", MaxBindings)
	case !bearer.Bound(s.Grants[i].Bearer, s.Grants[i].Signed, e.Peer, e.Signature):
		return s, fmt.Errorf("redeem: %w: the signature is not by the holder of the invite", ErrForbidden)
	}
	s.Grants = slices.Clone(s.Grants)
	s.Grants[i].Peers = append(slices.Clone(s.Grants[i].Peers), e.Peer)
	if s.Grants[i].Owner && !s.Owner(e.Peer) {
		s.Owners = append(slices.Clone(s.Owners), e.Peer)
	}
	return s, nil
}

// overdue returns why it is too late to come in by an invite; nil for a peer that did before. The log has no clock:
// the leader asks it before it takes the entry, as the door does before it proposes it.
func (e Redeem) overdue(s State, now time.Time) error {
	g, known := s.Grant(e.Serial)
	if known && g.Expired(now) && !slices.Contains(g.Peers, e.Peer) {
		return fmt.Errorf("redeem: %w", errInviteEnded)
	}
	return nil
}

// maxClockSkew is how far the clock of an owner that makes invites may be from the leader's. Invites end by the doors'
// clocks: one of an owner that is far behind would be over at once.
const maxClockSkew = 5 * time.Minute

// misdated returns why the leader does not take an invite of which it cannot have the date, nil for one known before.
func (e Invite) misdated(s State, now time.Time) error {
	off := now.Sub(time.Unix(e.Made, 0))
	if _, known := s.Grant(e.Serial); known || off.Abs() <= maxClockSkew {
		return nil
	}
	side := "behind"
	if off < 0 {
		side = "ahead of"
	}
	return fmt.Errorf("invite: this machine's clock is %s %s the leader's: set it (or the leader's, where that one is wrong)", plan.Duration(off.Abs().Round(time.Minute)), side)
}

// bindings counts the peers of all invites.
func (s State) bindings() int {
	n := 0
	for _, g := range s.Grants {
		n += len(g.Peers)
	}
	return n
}

func (e Revoke) apply(s State) (State, error) {
	if len(e.Reason) > maxText/2 || !name(string(e.By)) || (e.Peer == "") == (e.Serial == 0) {
		return s, fmt.Errorf("revoke: a reason of %d bytes by an owner of %d for peer %q or invite %016x: want at most %d, 1 to %d, and one of both",
			len(e.Reason), len(e.By), e.Peer.Short(), e.Serial, maxText/2, maxName)
	}
	if e.Peer != "" {
		return s.remove(Revocation{Peer: e.Peer, By: e.By, Reason: plan.Clip(e.Reason, maxText/2)})
	}
	i, known := s.grant(e.Serial)
	if !known {
		return s, fmt.Errorf("revoke: no invite %016x", e.Serial)
	}
	s.Grants = slices.Clone(s.Grants)
	s.Grants[i].Revoked = true
	if !e.Members {
		return s, nil
	}
	for _, p := range s.Grants[i].Peers {
		if p == e.By {
			continue // it may have come by it as well
		}
		next, err := s.remove(Revocation{Peer: p, By: e.By, Reason: plan.Clip(e.Reason, maxText/2)})
		if err != nil {
			return s, err
		}
		s = next
	}
	return s, nil
}

// remove takes a peer out of the run, with the invites that it has made. Those that it came by end, too, where they have
// uses left: the peer knows their secret, and would come back with another key.
func (s State) remove(r Revocation) (State, error) {
	if _, done := s.Revocation(r.Peer); done {
		return s, nil
	}
	m, member := s.Member(r.Peer)
	switch {
	case !member && !s.Admitted(r.Peer):
		return s, fmt.Errorf("revoke: %s does not belong to the run", r.Peer.Short())
	case len(s.Owners) == 1 && s.Owner(r.Peer):
		return s, fmt.Errorf("revoke: %s is the only owner of the run", s.NameOf(r.Peer))
	case len(s.Revoked) >= MaxBindings:
		return s, fmt.Errorf("revoke: %d peers were removed already", MaxBindings)
	}
	s.Revoked = append(slices.Clone(s.Revoked), r)
	s.Owners = slices.DeleteFunc(slices.Clone(s.Owners), func(p plan.PeerID) bool { return p == r.Peer })
	s.Grants = slices.Clone(s.Grants)
	for i := range s.Grants {
		g := &s.Grants[i]
		g.Revoked = g.Revoked || g.Issuer == r.Peer || len(g.Peers) < g.Uses && slices.Contains(g.Peers, r.Peer)
	}
	if member && m.State != Gone {
		s.Epoch++
		m.State, m.Reason, m.Since = Gone, s.Removal(r), s.Epoch
		s = s.withMember(m).forget()
	}
	return s, nil
}

// Removal says in words who removed a peer from the run, and why.
func (s State) Removal(r Revocation) string {
	text := "removed from the run by " + s.NameOf(r.By)
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}
