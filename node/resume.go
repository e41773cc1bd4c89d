package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pnode/node/config"
	"pnode/swarm/admission"
	"pnode/swarm/alpn"
	"pnode/swarm/consensus"
	"pnode/swarm/mesh"
)

const (
	// contactTimeout bounds reaching a member at addresses that somebody gave.
	contactTimeout = 10 * time.Second
	// returnTimeout bounds coming back to a run whose other nodes may be started later.
	returnTimeout = 15 * time.Minute
	// unreachableAfter bounds that wait where the machines of all others say that no node runs
	// there: time enough to start them all by hand.
	unreachableAfter = 2 * time.Minute
	// unreachableEvery is the time between two such questions.
	unreachableEvery = 5 * time.Second
)

// errUnreachablePeers says that the machines of all other nodes say that none runs there.
var errUnreachablePeers = errors.New("node: the other nodes do not run")

// resume takes part again in the run of a folder. contacts are addresses of members to try, with
// those that the membership has from before.
func resume(ctx context.Context, cfg config.Config, kept membership, contacts []string, out Output) error {
	kept.Known = append(contacts, kept.Known...)
	if cfg.Listen != "" {
		kept.Listen = cfg.Listen
	}
	if kept.Finished > 0 {
		announceCompletion(ctx, cfg, kept, out.Log)
		return finishedAt(kept.Finished)
	}
	o := opening{cfg: cfg, membership: kept, returning: true}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	out.tellFolder(cfg.Dir)
	owner, err := admission.LoadOwner(cfg.Dir)
	if err != nil && !errors.Is(err, admission.ErrNoOwnerKey) {
		return errors.Join(err, o.store.Close())
	}
	o.owner = owner
	n, err := open(ctx, o, out)
	if err != nil {
		return err
	}
	return n.run(ctx, bootstrap{
		patience: returnTimeout,
		contact:  func(ctx context.Context) error { return n.tryContacts(ctx, contacts) },
		ready:    n.takeBackStop,
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
			strings.Join(addrs, " or "), n.dir, n.membership.Run), ErrOtherRun}
	case errors.Is(err, mesh.ErrSelf):
		return marked{fmt.Errorf("node: %s is the address of this very node: give that of another node of run %s, or none", strings.Join(addrs, " or "), n.membership.Run), ErrBadInvite}
	case admission.IsRefusal(err):
		return marked{err, ErrRefused}
	}
	n.log.Info("contact", "cause", err)
	n.out.Notice(fmt.Sprintf("nobody answers at %s; trying on, there and at the addresses known from before", strings.Join(addrs, " or ")))
	return nil
}

// takeBackStop has a stopped run go on, if there is anything left to train.
func (n *Node) takeBackStop(ctx context.Context, state consensus.State) error {
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

// peersUnreachable reports whether this node comes back to a run of which no other node runs.
func (n *Node) peersUnreachable(ctx context.Context) bool {
	return len(n.lastKnown) > 0 && len(n.contacts()) == 0 && alpn.NobodyListens(ctx, n.lastKnown...)
}

// awaitUnreachable blocks until unreachable has held for unreachableAfter without a break. It
// reports false when ctx ends first.
func awaitUnreachable(ctx context.Context, unreachable func(context.Context) bool) bool {
	tick := time.NewTicker(unreachableEvery)
	defer tick.Stop()
	var since time.Time
	for {
		switch now := time.Now(); {
		case !unreachable(ctx):
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= unreachableAfter:
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// unreachableError says what to do where nobody is there any more.
func (n *Node) unreachableError() error {
	tried := n.lastKnown[:min(len(n.lastKnown), 3)]
	return fmt.Errorf("%w: %w: the machines at %s have said so for %.0f minutes. If they finished run %s without this node it is over, and `pnode export` in one of their folders gives the model; else start them again (`pnode train --resume` or `pnode join`), and then this one",
		ErrUnreachable, errUnreachablePeers, strings.Join(tried, ", "), unreachableAfter.Minutes(), n.membership.Run)
}
