package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/config"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
)

// connectTimeout bounds reaching a first member.
const connectTimeout = 30 * time.Second

// Join enters the run to which target leads, an invite or a multiaddr, with a node in
// cfg.Dir, and takes part until it ends. An empty target is the run that the folder belongs
// to. Of cfg only what is about this machine counts; without Listen it is any port, on
// loopback if the run is.
func Join(ctx context.Context, cfg config.Config, target string, out Output) error {
	if err := makeDir(cfg.Dir); err != nil {
		return err
	}
	kept, err := loadMembership(cfg.Dir)
	switch {
	case errors.Is(err, ErrNoRun) && target != "":
		return enter(ctx, cfg, target, out)
	case err != nil:
		return err
	case target == "":
		return resume(ctx, cfg, kept, nil, out)
	}
	invite, err := parseTarget(target)
	if run := invite.Grant.Run; err == nil && run != "" && run != kept.Run {
		err = marked{fmt.Errorf("node: the invite is for run %s, but the folder is in run %s", run, kept.Run), ErrOtherRun}
	}
	if err != nil {
		return fmt.Errorf("%w: %s: leave the invite out to come back, or name another folder with --dir", err, cfg.Dir)
	}
	return resume(ctx, cfg, kept, invite.Addrs, out)
}

func parseTarget(target string) (admission.Invite, error) {
	invite, err := admission.ParseInvite(target)
	if err != nil {
		err = marked{err, ErrBadInvite}
	}
	return invite, err
}

// enter comes into a run for the first time. The folder holds the run once a member has
// admitted this node.
func enter(ctx context.Context, cfg config.Config, target string, out Output) error {
	invite, err := parseTarget(target)
	if err != nil {
		return err
	}
	identity, err := admission.LoadIdentity(cfg.Dir)
	if err != nil {
		return err
	}
	capability, err := invite.Redeem(identity, time.Now())
	if err != nil {
		return marked{err, ErrRefused}
	}
	o := opening{cfg: cfg, membership: membership{
		Run: invite.Grant.Run, OwnerKey: invite.OwnerKey, Capability: capability, Listen: cfg.Listen, Known: invite.Addrs,
	}}
	far := func(a string) bool { return !strings.HasPrefix(a, "/ip4/127.") && !strings.HasPrefix(a, "/ip6/::1/") }
	if cfg.Listen == "" && slices.ContainsFunc(invite.Addrs, far) {
		o.membership.Listen = "0.0.0.0:0" // so that the other nodes can reach it; a run on loopback stays there
	}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	n, err := open(ctx, o, out)
	if err != nil {
		return err
	}
	return n.run(ctx, bootstrap{
		patience: enrollTimeout,
		contact:  n.firstContact,
		ready:    func(context.Context, consensus.State) error { return nil },
	})
}

// firstContact blocks until a node at the invite's addresses has admitted this one.
func (n *Node) firstContact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := n.swarm.Connect(ctx, n.membership.Known...)
	switch {
	case err == nil:
		n.out.tellFolder(n.dir)
		return nil
	case errors.Is(ctx.Err(), context.Canceled): // interrupted, not out of time
		return err
	case admission.IsRefusal(err):
		return marked{err, ErrRefused}
	}
	n.log.Info("first contact", "cause", err)
	return fmt.Errorf("%w: nobody answers at %s: see that the node which made the invite runs and that this machine reaches it (address, firewall), or ask for a new invite if it has moved",
		ErrUnreachable, strings.Join(n.membership.Known, " or "))
}
