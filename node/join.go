package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"pnode/node/config"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/pairing"
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
		return early(ctx, enter(ctx, cfg, target, out))
	case err != nil:
		return err
	case target == "":
		return early(ctx, resume(ctx, cfg, kept, nil, out))
	}
	invite, err := parseTarget(target)
	if err == nil && !invite.For(admission.Run{ID: kept.Run, OwnerKey: kept.OwnerKey}) {
		err = marked{fmt.Errorf("node: the invite is for another run, but the folder is in run %s", kept.Run), ErrOtherRun}
	}
	if err != nil {
		return fmt.Errorf("%w: %s: leave the invite out to come back, or name another folder with --dir", err, cfg.Dir)
	}
	if err := kept.renew(ctx, cfg, invite, out); err != nil {
		return err
	}
	return early(ctx, resume(ctx, cfg, kept, invite.Addrs, out))
}

// renew takes the capability of an invite in place of the folder's own, if the contact says that the invite is open and
// it gives more.
func (m *membership) renew(ctx context.Context, cfg config.Config, invite admission.Invite, out Output) error {
	own, err := admission.DecodeCapability(m.Capability)
	now := time.Now()
	if err != nil || !invite.Entitles() || own.Role == admission.RoleOwner && !ending(own.Grant, now) {
		return err
	}
	identity, err := admission.LoadIdentity(cfg.Dir)
	if err != nil {
		return err
	}
	invite, err = out.claim(ctx, identity, m.Listen, invite)
	switch {
	case err != nil && !now.Before(own.Expires):
		return contactError(ctx, err, invite.Addrs, out.Log)
	case err != nil:
		out.Log.Info("the invite is of no use any more, coming back without it", "cause", err)
		return nil
	case !better(invite.Grant, own.Grant, now):
		return nil
	}
	capability, err := invite.Redeem(identity, now)
	if err != nil {
		return refusedError(err)
	}
	m.Capability = capability
	return nil
}

// renewBefore is how long before its end a membership is renewed by an invite.
const renewBefore = 30 * 24 * time.Hour

// ending reports whether a membership has ended or ends soon.
func ending(own admission.Grant, now time.Time) bool { return own.Expires.Sub(now) < renewBefore }

// better reports whether an offered grant is worth a place of its invite to who has a grant already: it makes an owner of
// a member, or lasts longer than one that ends. Nobody stops being an owner by it.
func better(offered, own admission.Grant, now time.Time) bool {
	if offered.Role != own.Role {
		return offered.Role == admission.RoleOwner
	}
	return ending(own, now) && offered.Expires.After(own.Expires)
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
	listen := cfg.Listen
	if listen == "" && cfg.Announce == "" && slices.ContainsFunc(invite.Addrs, far) {
		listen = config.AnyPort // so that the other nodes can reach it; a run on loopback stays there
	}
	o := opening{cfg: cfg, membership: membership{Listen: listen, Known: invite.Addrs}}
	if err := o.settleAddresses(os.Environ(), out); err != nil {
		return err
	}
	o.tellVisible(out) // before the contact sees this machine's address
	if invite.Entitles() {
		out.Notice(askingText(invite.Addrs))
	}
	if invite, err = out.claim(ctx, identity, o.membership.Listen, invite); err != nil {
		return contactError(ctx, err, invite.Addrs, out.Log)
	}
	capability, err := invite.Redeem(identity, time.Now())
	if err != nil {
		return refusedError(err)
	}
	o.membership.Run, o.membership.OwnerKey, o.membership.Capability = invite.Grant.Run, invite.OwnerKey, capability
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

// mostTried bounds the addresses that people are told of.
const mostTried = 2

// askingText tells people whom a node asks to be let in, and for how long.
func askingText(addrs []string) string {
	var at []string
	for _, a := range addrs {
		where, _, _ := strings.Cut(a, "/p2p/")
		at = append(at, where)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	more := ""
	if n := len(at) - mostTried; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("asking to be let in at %s%s, for %s at most", strings.Join(at[:min(mostTried, len(at))], ", "), more, plan.Duration(connectTimeout))
}

// far reports whether a multiaddr is that of another machine.
func far(a string) bool {
	return !strings.HasPrefix(a, "/ip4/127.") && !strings.HasPrefix(a, "/ip6/::1/")
}

// firstContact blocks until a node at the invite's addresses has admitted this one.
func (n *Node) firstContact(ctx context.Context) error {
	known := slices.Clone(n.membership.Known)
	first, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := n.swarm.Connect(first, known...)
	if err == nil {
		n.out.tellFolder(n.dir)
		n.group.Go(func() error { tellWay(n.base, n.swarm, known, n.out); return nil })
		return nil
	}
	return contactError(ctx, err, known, n.log)
}

// claim asks the contact of an invite for the run and the grant.
func (o Output) claim(ctx context.Context, id admission.Identity, listen string, v admission.Invite) (admission.Invite, error) {
	if !v.Entitles() {
		return v, admission.ErrNeedsInvite
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg := swarm.Config{Identity: id, Listen: []string{"127.0.0.1:0"}, Simulated: o.simulated()}
	if listen != "" {
		cfg.Listen = []string{listen}
	}
	return swarm.Claim(ctx, cfg, v)
}

// ErrSeveralRuns marks a search of the local network that found several runs, of which none was named.
var ErrSeveralRuns = errors.New("node: several runs are in the local network")

// LocalAsk says how this machine asks in the local network to be let into a run.
type LocalAsk struct {
	// Run names the run: the name of the owner's machine, or the beginning of the run's ID. Empty is the only one that there is.
	Run string
	// Name is what this machine calls itself.
	Name string
	// Tell gets lines for people.
	Tell func(string)
	// Confirm asks people, once the owner has consented, whether that was at the machine that they mean. An error ends it.
	Confirm func(ctx context.Context, machine, code string) error
}

// Do finds a run in the local network, has its owner asked, and returns the invite that people there have given this machine. The error wraps
// config.ErrNoRun, ErrSeveralRuns, or ErrRefused where they say no.
func (a LocalAsk) Do(ctx context.Context) (invite string, err error) {
	found, err := swarm.SearchLocal(ctx)
	if err != nil {
		return "", fmt.Errorf("%w in the local network: %w", config.ErrNoRun, err)
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	run, err := a.choose(found.Runs)
	if err != nil {
		return "", err
	}
	var code string
	invite, err = found.Ask(ctx, run, a.Name, func(shown string) {
		code = shown
		a.Tell(fmt.Sprintf("asking %s to let this machine into run %s. On %s, if it shows the same code %s, enter: pnode admit %s", run.Name, run.ID, run.Name, pairing.Spoken(code), code))
	})
	switch {
	case ctx.Err() != nil:
		return "", ErrInterrupted
	case errors.Is(err, pairing.ErrRefused):
		return "", marked{fmt.Errorf("%s has not let this machine in: %w", run.Name, err), ErrRefused}
	case err != nil:
		return "", fmt.Errorf("%w: ask %s in the local network: %w", ErrUnreachable, run.Name, err)
	}
	if _, err := parseTarget(invite); err != nil {
		return "", err
	}
	return invite, a.Confirm(ctx, run.Name, code)
}

// choose returns the run that is meant.
func (a LocalAsk) choose(runs []pairing.Run) (pairing.Run, error) {
	var meant []pairing.Run
	var ways, all []string
	for _, r := range runs {
		way := fmt.Sprintf("`pnode join --lan=%s` (on %s)", r.ID, r.Name)
		if all = append(all, way); a.Run == "" || r.Name == a.Run || strings.HasPrefix(string(r.ID), a.Run) {
			meant, ways = append(meant, r), append(ways, way)
		}
	}
	switch {
	case len(meant) == 1:
		return meant[0], nil
	case len(meant) > 1:
		return pairing.Run{}, fmt.Errorf("%w: choose one: %s", ErrSeveralRuns, strings.Join(ways, ", "))
	case len(all) > 0:
		return pairing.Run{}, fmt.Errorf("%w in the local network that is %q; there are: %s", config.ErrNoRun, a.Run, strings.Join(all, ", "))
	}
	return pairing.Run{}, fmt.Errorf("%w in the local network: start one there with `pnode train --lan` (UDP port 5353 must be open on both machines), or enter one with `pnode join INVITE`", config.ErrNoRun)
}
