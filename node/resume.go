package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"pnode/node/config"
	"pnode/node/monitor"
	"pnode/node/plain"
	"pnode/planner/plan"
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
	// unreachableAfter bounds the wait for others where the machines of all of them say that no node runs there: time enough to
	// start them all by hand.
	unreachableAfter = 2 * time.Minute
	// unreachableEvery is the time between two such questions.
	unreachableEvery = 5 * time.Second
	// aloneAfter is that bound of a node that has run with them: whoever crashed may be started again without anybody here,
	// and `pnode recover` is possible meanwhile.
	aloneAfter = returnTimeout
	// silentAfter bounds its wait where machines say nothing: a network may be down for hours, and comes back by itself.
	silentAfter = 24 * time.Hour
)

// errUnreachablePeers says that the machines of all other nodes say that none runs there.
var errUnreachablePeers = errors.New("node: the other nodes do not run")

// resume takes part again in the run of a folder. contacts are addresses of members to try, with
// those that the membership has from before.
func resume(ctx context.Context, cfg config.Config, kept membership, contacts []string, out Output) error {
	if err := checkEnd(cfg.Dir, cfg.Extends()); err != nil {
		return err
	}
	kept.Known = append(contacts, kept.Known...)
	if len(kept.Admitted) > 0 { // whoever starts this node vouches for the peers at the addresses
		kept.Admitted = append(kept.Admitted, peersAt(contacts)...)
	}
	if cfg.Listen != "" {
		kept.Listen = cfg.Listen
	}
	o := opening{cfg: cfg, membership: kept, returning: true, extends: max(cfg.Extends(), kept.Extends)}
	if kept.Finished > 0 && !kept.Unsettled && o.extends <= kept.Finished {
		if o.extends = announceCompletion(ctx, cfg, kept, out); o.extends == 0 {
			return kept.finishedIn(ctx, cfg.Dir, out.Log)
		}
	}
	if err := o.settleAddresses(os.Environ(), out); err != nil {
		return err
	}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	o.tellVisible(out)
	out.tellFolder(cfg.Dir)
	n, err := open(ctx, o, out)
	if err != nil {
		return err
	}
	return n.run(ctx, bootstrap{
		patience: n.patience(),
		contact:  func(ctx context.Context) error { return n.tryContacts(ctx, contacts) },
		ready:    n.takeBackStop,
	})
}

// peersAt returns the peers that addresses name.
func peersAt(addrs []string) []plan.PeerID {
	infos, err := admission.ParseAddrs(addrs)
	if err != nil {
		return nil // the swarm says why
	}
	var peers []plan.PeerID
	for _, i := range infos {
		peers = append(peers, plan.PeerID(i.ID.String()))
	}
	return peers
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

// takeBackStop has a stopped run go on, if there is anything left to train. While an owner is active that is the
// owner's to say, and everyone else waits for it: the leader finds out within a minute if that node is gone, and the rule of lonely ends the
// wait where nobody leads.
func (n *Node) takeBackStop(ctx context.Context, _ consensus.State) error {
	told := ""
	defer n.monitor.SetServing("")
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	n.group.Go(func() error { lonely{n}.watch(ctx, end); return nil })
	for {
		changed := n.raft.Changed()
		state := n.raft.State()
		resume := consensus.Resume{Incarnation: state.Incarnation + 1}
		switch {
		case n.custody.extends > state.Run.Train.Steps && !state.Owner(n.self) && (state.Finished || !state.StopWanted):
			text := onlyOwnersExtend(state, n.custody.extends)
			if text != told {
				told = text
				n.out.Notice(text)
			}
			if !state.Finished { // there is something to train all the same
				return n.announceInvite(ctx)
			}
			n.monitor.SetServing(text)
		case n.custody.extends > state.Run.Train.Steps && state.Owner(n.self):
			if err := n.raft.Propose(ctx, consensus.Extend{Steps: n.custody.extends}); err != nil {
				return cmp.Or(context.Cause(ctx), fmt.Errorf("node: %w", err))
			}
			n.membership.Finished = 0
		case state.Finished && (n.custody.awaits(state.Checkpoint.Step) || n.custody.keeps(state)):
			return nil // the model goes where it belongs before this node ends, and the others wait for the word that it is here
		case state.Finished:
			return finishedError{step: state.Checkpoint.Step, dir: n.dir, owner: state.Owner(n.self), names: namesIn(state, state.Owners)}
		case !state.StopWanted:
			return n.announceInvite(ctx)
		case consensus.Authorize(state, consensus.Author{Peer: n.self}, resume) == nil:
			if err := n.raft.Propose(ctx, resume); err != nil && !errors.Is(err, consensus.ErrRejected) {
				return cmp.Or(context.Cause(ctx), err)
			} // refused or taken: the state here follows
		default:
			if notice := monitor.StoppedText(state, n.self) + ", or by itself once that node is known to be gone"; notice != told {
				told = notice
				n.out.Notice(notice)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// onlyOwnersExtend says who can give a run the later end that was asked for here, or that another node told of, and what this node does.
func onlyOwnersExtend(state consensus.State, end plan.Step) string {
	then := "this node trains up to the end that there is"
	if state.Finished {
		then = "this node waits for that"
	}
	return fmt.Sprintf("the run ends at step %d, and only its owner's machine, %s, can move that: `pnode train --resume --steps %d` there; %s",
		state.Run.Train.Steps, strings.Join(namesIn(state, state.Owners), " or "), end, then)
}

// patience returns how long this node tries to come back to its run.
func (n *Node) patience() time.Duration { return returnTimeout + n.recoverAfter }

// peersUnreachable reports whether none of the other nodes runs, as the machines at their addresses say.
func (n *Node) peersUnreachable(ctx context.Context, addrs []string) bool {
	return n.recoverAfter == 0 && len(addrs) > 0 && len(n.contacts()) == 0 && alpn.NobodyListens(ctx, n.out.simulated(), addrs...)
}

// awaitUnreachable blocks until unreachable has held for a time without a break. It reports false when ctx ends first. tell gets at each
// look since when that holds; zero where it does not.
func awaitUnreachable(ctx context.Context, limit time.Duration, unreachable func(context.Context) bool, tell func(since time.Time)) bool {
	tick := time.NewTicker(unreachableEvery)
	defer tick.Stop()
	var since time.Time
	for {
		switch now := time.Now(); {
		case !unreachable(ctx):
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= limit:
			return true
		}
		tell(since)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// stoppedError says how a stopped run goes on, whose owner did not come back while this node waited.
func (n *Node) stoppedError(state consensus.State) error {
	return fmt.Errorf("%w: %s. This node has waited for %s and ends; start it again once that is done: `%s`. Where that owner is gone for good: `pnode train --resume --on-lost-majority recover-after=10m --dir %s`",
		ErrUnreachable, monitor.StoppedText(state, n.self), plan.Duration(n.patience()), config.WayBack(n.dir, false), plain.Quote(n.dir))
}

// unreachableError says what to do where nobody is there to come back to.
func (n *Node) unreachableError() error {
	known, _ := n.monitor.Known()
	return fmt.Errorf("%w: %w: the machines of %s have said so for %s. If they finished run %s without this node it is over, and `pnode export` in one of their folders gives the model; else start them again (`pnode train --resume` or `pnode join`), and then this one. Where they are gone for good: `pnode train --resume --on-lost-majority recover-after=10m --dir %s`",
		ErrUnreachable, errUnreachablePeers, monitor.Tried(known, n.lastKnown), plan.Duration(unreachableAfter), n.membership.Run, plain.Quote(n.dir))
}

// lonely ends a node that runs once it waits in vain, by the rule of one that comes back: no leader is known, and no machine of
// another member has a node.
type lonely struct{ *Node }

// watch watches the others until ctx ends, and calls end with what to do where they are away for good.
func (n lonely) watch(ctx context.Context, end func(error)) {
	if awaitUnreachable(ctx, aloneAfter, n.alone, func(time.Time) {}) {
		end(n.explain(n.raft.State(), time.Now()))
	}
}

// alone reports whether this node waits for others that do not run, or has not heard of a leader for silentAfter.
func (n lonely) alone(ctx context.Context) bool {
	state := n.raft.State()
	leader, _, _ := n.raft.Leader()
	lost := n.raft.Quorum().LostSince
	if leader != "" || lost.IsZero() || state.Finished || state.Run == nil {
		return false
	}
	return n.recoverAfter == 0 && time.Since(lost) > silentAfter || n.peersUnreachable(ctx, addrsOf(state, n.self, n.swarm.Known()))
}

// addrsOf returns those of the known addresses that are of members which are not gone.
func addrsOf(state consensus.State, self plan.PeerID, known []string) []string {
	return slices.DeleteFunc(slices.Clone(known), func(addr string) bool {
		return !slices.ContainsFunc(state.Members, func(m consensus.Member) bool {
			return m.Peer != self && m.State != consensus.Gone && strings.HasSuffix(addr, "/p2p/"+string(m.Peer))
		})
	})
}

// explain says who was last heard when, where the model is, and how to go on.
func (n lonely) explain(state consensus.State, now time.Time) error {
	why := fmt.Sprintf("the machines of all others have said so for %s", plan.Duration(aloneAfter))
	if lost := n.raft.Quorum().LostSince; now.Sub(lost) > silentAfter {
		why = fmt.Sprintf("nobody leads the run since %s", lost.Format(time.DateTime))
	}
	if stopped := monitor.StoppedText(state, n.self); stopped != "" {
		why = stopped + "; " + why
	}
	var heard []string
	model, owner := "", false
	for _, m := range state.Members {
		whole := n.heartbeats.Whole(m.Peer)
		if m.Peer == n.self {
			whole = n.custody.whole.Copy()
		} else if m.State != consensus.Gone {
			heard = append(heard, fmt.Sprintf("%s at %s", state.NameOf(m.Peer), plain.Moment(now.Add(-n.heardAgo(m.Peer)), now, time.TimeOnly)))
		}
		if whole.Step > 0 && (model == "" || state.Owner(m.Peer) && !owner) {
			model, owner = fmt.Sprintf(" The whole model of step %d was on %s.", whole.Step, state.NameOf(m.Peer)), state.Owner(m.Peer)
		}
	}
	return fmt.Errorf("%w: %w: %s (last heard: %s).%s If they finished run %s without this node it is over, and `pnode export` in one of their folders gives the model. Else start them again, and then this one: `%s`. Where they are gone for good: `pnode train --resume --on-lost-majority recover-after=10m --dir %s`",
		ErrUnreachable, errUnreachablePeers, why, strings.Join(heard, ", "), model, n.membership.Run, config.WayBack(n.dir, state.Owner(n.self)), plain.Quote(n.dir))
}
