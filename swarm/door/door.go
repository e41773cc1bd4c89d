package door

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// Log is the replicated log as a door sees it. *consensus.Node is one.
type Log interface {
	State() consensus.State
	// Propose has an entry committed, or returns an error that wraps consensus.ErrRejected or consensus.ErrNoLeader.
	Propose(ctx context.Context, e consensus.Entry) error
}

// Door lets peers in. Its methods may be called from any goroutine.
type Door struct {
	run  admission.Run
	kept []plan.PeerID
	now  func() time.Time
	// log may be read when opened is closed.
	opened chan struct{}
	log    Log
}

// New returns the door of a node in a run, which is shut until Open. kept are the peers that belonged to the run when this
// node was last in it; none for a node that never was. Invites end by the time that now returns.
func New(run admission.Run, kept []plan.PeerID, now func() time.Time) *Door {
	return &Door{run: run, kept: kept, now: now, opened: make(chan struct{})}
}

// Open has the door ask the log from now on. It is called once.
func (d *Door) Open(log Log) {
	d.log = log
	close(d.opened)
}

// Admit returns nil for a peer that belongs to the run, after the log has noted a newcomer, or the refusal. Call it with
// a capability whose signatures are good.
func (d *Door) Admit(ctx context.Context, c admission.Capability) error {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return admission.ErrNoMajority
	}
	state := d.log.State()
	if state.Run == nil {
		if len(d.kept) == 0 || slices.Contains(d.kept, c.Peer) {
			return nil // a node without the log believes signatures
		}
	} else if err := judge(state, c, d.now()); err != nil || state.Admitted(c.Peer) && (c.Role != admission.RoleOwner || state.Owner(c.Peer)) {
		return err
	}
	err := d.log.Propose(ctx, consensus.Redeem{Serial: uint64(c.Serial), Peer: c.Peer, Signature: c.Signature()})
	if err == nil {
		return nil
	}
	if why := judge(d.log.State(), c, d.now()); why != nil {
		return why // the same as the log says, with its sentinel
	}
	switch {
	case d.log.State().Admitted(c.Peer):
		return nil // it belongs to the run; an owner's power would come from the log, which has not given it
	case slices.Contains(d.kept, c.Peer):
		return nil // the state is a snapshot's, older than this node's list, until the leader goes on from it: it may be that leader
	case !errors.Is(err, consensus.ErrRejected):
		return admission.ErrNoMajority
	}
	return fmt.Errorf("%w: %w", admission.ErrRefused, err)
}

// judge returns why a peer does not come in, as far as this node knows. An invite that is unknown here may be known to
// the leader.
func judge(s consensus.State, c admission.Capability, now time.Time) error {
	if r, revoked := s.Revocation(c.Peer); revoked {
		return admission.Removed(s.Removal(r))
	}
	g, known := s.Grant(uint64(c.Serial))
	switch {
	case s.Admitted(c.Peer) || !known:
		return nil
	case string(g.Signed) != string(c.Grant.Encode()):
		return admission.ErrSignature
	}
	return usable(g, now)
}

// usable returns why nobody new comes in by an invite; nil while somebody may.
func usable(g consensus.Grant, now time.Time) error {
	switch {
	case g.Revoked:
		return admission.ErrInviteRevoked
	case len(g.Peers) >= g.Uses:
		return fmt.Errorf("%w (it was for %d)", admission.ErrInviteUsed, g.Uses)
	case g.Expired(now):
		return fmt.Errorf("%w (it ended at %s)", admission.ErrInviteExpired, time.Unix(g.RedeemBefore, 0).UTC().Format("2006-01-02 15:04 MST"))
	}
	return nil
}

// Offer answers a newcomer that knows the secret of an invite, whose public half is bearer: with the run and the grant,
// or with the reason why the invite is of no use any more. It reports false for an invite that this node does not know.
func (d *Door) Offer(newcomer plan.PeerID, bearer []byte) (admission.Offer, bool) {
	select {
	case <-d.opened:
	default:
		return admission.Offer{}, false
	}
	state := d.log.State()
	i := slices.IndexFunc(state.Grants, func(g consensus.Grant) bool { return len(g.Bearer) > 0 && string(g.Bearer) == string(bearer) })
	if i < 0 {
		return admission.Offer{}, false
	}
	g := state.Grants[i]
	if r, revoked := state.Revocation(newcomer); revoked {
		return admission.RefuseClaim(admission.Removed(state.Removal(r))), true
	}
	if err := usable(g, d.now()); err != nil && !slices.Contains(g.Peers, newcomer) {
		return admission.RefuseClaim(err), true
	}
	grant, err := admission.DecodeGrant(g.Signed)
	if err != nil {
		return admission.RefuseClaim(err), true
	}
	return admission.Offer{Run: d.run, Grant: grant}, true
}
