package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pnode/node/config"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/mesh"
)

// reentry is how a node that has been in a run before comes back.
type reentry struct {
	cfg config.Config
	// contacts are addresses to try beside those known from before.
	contacts []string
}

// reenter takes part again in the run of a folder.
func reenter(ctx context.Context, seat membership, r reentry, out Output) error {
	if seat.Finished > 0 {
		epilogue(ctx, r.cfg, seat, out.Log)
		return finishedAt(seat.Finished)
	}
	o := opening{cfg: r.cfg, seat: seat, returning: true}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	out.tellFolder(r.cfg.Dir)
	owner, err := admission.LoadOwner(r.cfg.Dir)
	if err != nil && !errors.Is(err, admission.ErrNoOwnerKey) {
		return errors.Join(err, o.store.Close())
	}
	o.owner = owner
	n, err := open(ctx, o, out)
	if err != nil {
		return err
	}
	return n.run(ctx, arrival{
		patience: returnTimeout,
		contact:  func(ctx context.Context) error { return n.tryContacts(ctx, r.contacts) },
		ready:    n.resume,
	})
}

// tryContacts makes contact at addresses that somebody gave for the run of this folder. A
// node of another run there is an error; where nobody answers yet the return goes on.
func (n *Node) tryContacts(ctx context.Context, addrs []string) error {
	if len(addrs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	err := n.swarm.Connect(ctx, addrs...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, admission.ErrWrongRun), errors.Is(err, admission.ErrSignature):
		n.log.Info("contact", "cause", err)
		return marked{fmt.Errorf("node: a node of another run answers at %s, but %s is in run %s: leave the address out to come back to that run, or join the other one with an invite and another --dir",
			strings.Join(addrs, " or "), n.dir, n.seat.Run), ErrOtherRun}
	case errors.Is(err, mesh.ErrSelf):
		return marked{fmt.Errorf("node: %s is the address of this very node: give that of another node of run %s, or none", strings.Join(addrs, " or "), n.seat.Run), ErrBadInvite}
	case admission.IsRefusal(err):
		return refused(err)
	}
	n.log.Info("contact", "cause", err)
	n.out.Notice(fmt.Sprintf("nobody answers at %s; trying on, there and at the addresses known from before", strings.Join(addrs, " or ")))
	return nil
}

// resume takes back a stop, if there is anything left to train.
func (n *Node) resume(ctx context.Context, state consensus.State) error {
	if state.Finished {
		return finishedAt(state.Checkpoint.Step)
	}
	if state.StopWanted {
		err := n.raft.Propose(ctx, consensus.Resume{Incarnation: state.Incarnation + 1})
		if err != nil && !errors.Is(err, consensus.ErrStale) {
			return err
		}
	}
	return n.announceInvite()
}
