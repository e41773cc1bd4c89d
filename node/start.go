package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/node/weights"
	"pnode/planner"
	"pnode/swarm"
	"pnode/swarm/consensus"
	"pnode/swarm/keepsake"
)

const (
	// ownMembership is how long the creator's own membership lasts.
	ownMembership = 10 * 365 * 24 * time.Hour
	// connectTimeout bounds reaching a first member, contactTimeout one more on a return.
	connectTimeout = 30 * time.Second
	contactTimeout = 10 * time.Second
)

var (
	// ErrFinished says that there is nothing left to train.
	ErrFinished = errors.New("node: the run is finished")
	// ErrUnreachable says that no member let this node in, or that no majority is up.
	ErrUnreachable = errors.New("node: cannot reach the run")
)

// Train begins a run in cfg.Dir, or resumes the one that is there, and takes part until it
// ends. Cancelling ctx leaves it in good order: with other nodes by handing over, alone by
// a checkpoint.
func Train(ctx context.Context, cfg config.Config, out Output) error {
	if err := makeDir(cfg.Dir); err != nil {
		return err
	}
	seat, err := loadMembership(cfg.Dir)
	switch {
	case err == nil && !cfg.Resume:
		return fmt.Errorf("node: %s already holds run %s: go on with it by --resume, or choose another --dir", cfg.Dir, seat.Run)
	case errors.Is(err, ErrNoRun) && !cfg.Resume:
		return begin(ctx, cfg, out)
	case err != nil:
		return err
	}
	if cfg.Listen != "" {
		seat.Listen = cfg.Listen
	}
	return reenter(ctx, seat, reentry{dir: cfg.Dir, threads: cfg.Threads, emulate: cfg.Emulate, trace: cfg.Trace}, out)
}

// begin founds a run: its text into chunks, its keys, its specification into a new log.
func begin(ctx context.Context, cfg config.Config, out Output) error {
	if weights.KindOf(cfg.Dir) != weights.Nothing {
		return fmt.Errorf("node: %s holds a model: name another folder for the run with --dir", cfg.Dir)
	}
	o := opening{dir: cfg.Dir, threads: cfg.Threads, emulate: cfg.Emulate, trace: cfg.Trace, founder: true}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	spec, err := o.found(ctx, cfg, out)
	if err != nil {
		return errors.Join(err, o.store.Close())
	}
	n, err := open(ctx, o, out)
	if err != nil {
		return errors.Join(err, unfound(o.dir))
	}
	err = n.run(ctx, arrival{
		patience: enrollTimeout,
		contact:  func(ctx context.Context) error { return n.raft.Propose(ctx, consensus.SetRun{Spec: spec}) },
		ready:    func(context.Context, consensus.State) error { return n.announceInvite() },
	})
	if n.raft.State().Run == nil {
		err = errors.Join(err, unfound(o.dir))
	}
	return err
}

// unfound takes the membership of a run back whose specification never came into the log:
// there is nothing to come back to.
func unfound(dir string) error {
	if err := keepsake.Remove(dir, config.MembershipFile); err != nil {
		return fmt.Errorf("node: take the membership back: %w", err)
	}
	return nil
}

// prepare reads what the node is to look like and opens the folder's identity and store.
func (o *opening) prepare(log *slog.Logger) (err error) {
	if o.look, err = loadLook(o.emulate); err != nil {
		return err
	}
	if o.identity, err = swarm.LoadIdentity(o.dir); err != nil {
		return err
	}
	o.store, err = checkpoint.Open(storeDir(o.dir), checkpoint.Options{
		Self: o.identity.Peer(), Logger: log, MustExist: o.returning,
	})
	return err
}

// found makes what a new run consists of. The membership is written last: only then does
// the folder hold a run.
func (o *opening) found(ctx context.Context, cfg config.Config, out Output) (planner.RunSpec, error) {
	run := planner.RunID(strings.ToLower(rand.Text()[:16]))
	spec, err := o.specify(ctx, cfg, run, out)
	if err != nil {
		return planner.RunSpec{}, err
	}
	if o.owner, err = swarm.CreateOwner(o.dir); err != nil {
		return planner.RunSpec{}, err
	}
	capability, err := o.owner.Capability(run, o.identity, ownMembership, time.Now())
	if err != nil {
		return planner.RunSpec{}, err
	}
	o.seat = membership{Run: run, OwnerKey: o.owner.PublicKey(), Capability: capability, Listen: cfg.Listen}
	return spec, o.seat.save(o.dir)
}

// specify brings text and weights into chunks and says what the run is.
func (o *opening) specify(ctx context.Context, cfg config.Config, run planner.RunID, out Output) (spec planner.RunSpec, err error) {
	from, err := openOrigin(ctx, cfg)
	if err != nil {
		return spec, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	data, err := importText(ctx, o.store, textSource{cfg, from, o.dir}, out)
	if err != nil {
		return spec, err
	}
	if spec, err = cfg.RunSpec(from.modelFor(data, out), data, run); err != nil {
		return spec, err
	}
	if err := checkText(spec); err != nil {
		return spec, err
	}
	if from.weights != nil {
		spec.Init, err = importWeights(ctx, o.store, from.weights, out)
	}
	return spec, err
}

// reentry is how a node that has been in a run before comes back.
type reentry struct {
	dir     string
	threads int
	emulate string
	trace   string
	// contacts are addresses to try beside those known from before.
	contacts []string
}

// reenter takes part again in the run of a folder.
func reenter(ctx context.Context, seat membership, r reentry, out Output) error {
	if seat.Finished > 0 {
		return finishedAt(seat.Finished)
	}
	o := opening{dir: r.dir, threads: r.threads, emulate: r.emulate, trace: r.trace, seat: seat, returning: true}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	owner, err := swarm.LoadOwner(r.dir)
	if err != nil && !errors.Is(err, swarm.ErrNoOwnerKey) {
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
	case errors.Is(err, swarm.ErrWrongRun), errors.Is(err, swarm.ErrSignature):
		n.log.Info("contact", "cause", err)
		return marked{fmt.Errorf("node: a node of another run answers at %s, but %s is in run %s: leave the address out to come back to that run, or join the other one with an invite and another --dir",
			strings.Join(addrs, " or "), n.dir, n.seat.Run), ErrOtherRun}
	case errors.Is(err, swarm.ErrSelf):
		return marked{fmt.Errorf("node: %s is the address of this very node: give that of another node of run %s, or none", strings.Join(addrs, " or "), n.seat.Run), ErrBadInvite}
	case swarm.IsRefusal(err):
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

func finishedAt(step planner.Step) error {
	return fmt.Errorf("%w at step %d: start another with `pnode train`", ErrFinished, step)
}

// JoinOptions say which run to enter, and how.
type JoinOptions struct {
	// Target is an invite, or a multiaddr; empty is the run that Dir belongs to.
	Target string
	Dir    string
	// Listen is this node's "host:port"; empty is any port, on loopback if the run is.
	Listen  string
	Threads int
	// Emulate is a file that says what this node is to look like (config.Emulation).
	Emulate string
	// Trace is a file for the timeline of what this node computes (pipeline/trace); empty is
	// none.
	Trace string
}

// Join enters a run by an invite, or again, and takes part until it ends.
func Join(ctx context.Context, opt JoinOptions, out Output) error {
	if err := makeDir(opt.Dir); err != nil {
		return err
	}
	seat, err := loadMembership(opt.Dir)
	switch {
	case errors.Is(err, ErrNoRun) && opt.Target != "":
		return enter(ctx, opt, out)
	case err != nil:
		return err
	}
	again := reentry{dir: opt.Dir, threads: opt.Threads, emulate: opt.Emulate, trace: opt.Trace}
	if opt.Target != "" {
		if again.contacts, err = seat.contactsIn(opt.Target); err != nil {
			return fmt.Errorf("%w: %s: leave the invite out to come back, or name another folder with --dir", err, opt.Dir)
		}
	}
	seat.Known = append(again.contacts, seat.Known...)
	if opt.Listen != "" {
		seat.Listen = opt.Listen
	}
	return reenter(ctx, seat, again, out)
}

// contactsIn are the addresses in an invite, or an address, for a node that is in the run
// already. An invite to another run is an error.
func (m membership) contactsIn(target string) ([]string, error) {
	invite, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	if run := invite.Grant.Run; run != "" && run != m.Run {
		return nil, marked{fmt.Errorf("node: the invite is for run %s, but the folder is in run %s", run, m.Run), ErrOtherRun}
	}
	return invite.Addrs, nil
}

func parseTarget(target string) (swarm.Invite, error) {
	invite, err := swarm.ParseInvite(target)
	if err != nil {
		err = marked{err, ErrBadInvite}
	}
	return invite, err
}

// redeem turns an invite into a membership.
func redeem(opt JoinOptions) (membership, error) {
	invite, err := parseTarget(opt.Target)
	if err != nil {
		return membership{}, err
	}
	identity, err := swarm.LoadIdentity(opt.Dir)
	if err != nil {
		return membership{}, err
	}
	capability, err := invite.Redeem(identity, time.Now())
	if err != nil {
		return membership{}, refused(err)
	}
	m := membership{
		Run: invite.Grant.Run, OwnerKey: invite.OwnerKey, Capability: capability,
		Listen: listenFor(invite.Addrs), Known: invite.Addrs,
	}
	if opt.Listen != "" {
		m.Listen = opt.Listen
	}
	return m, nil
}

// listenFor is where a joining node listens unless told otherwise: on loopback for a run
// that is on loopback only, else on every interface, so that the other nodes can reach it.
func listenFor(addrs []string) string {
	for _, a := range addrs {
		if !strings.HasPrefix(a, "/ip4/127.") && !strings.HasPrefix(a, "/ip6/::1/") {
			return "0.0.0.0:0"
		}
	}
	return ""
}

// enter comes into a run for the first time; the folder holds it once a member has
// admitted this node.
func enter(ctx context.Context, opt JoinOptions, out Output) error {
	seat, err := redeem(opt)
	if err != nil {
		return err
	}
	o := opening{dir: opt.Dir, threads: opt.Threads, emulate: opt.Emulate, trace: opt.Trace, seat: seat}
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	n, err := open(ctx, o, out)
	if err != nil {
		return err
	}
	return n.run(ctx, arrival{
		patience: enrollTimeout,
		contact:  n.firstContact,
		ready:    func(context.Context, consensus.State) error { return nil },
	})
}

// firstContact waits until a node at the invite's addresses has admitted this one.
func (n *Node) firstContact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := n.swarm.Connect(ctx, n.seat.Known...)
	switch {
	case err == nil, context.Cause(ctx) != nil && ctx.Err() == context.Canceled: //nolint:errorlint // interrupted
		return err
	case swarm.IsRefusal(err):
		return refused(err)
	}
	n.log.Info("first contact", "cause", err)
	return fmt.Errorf("%w: nobody answers at %s: see that the node which made the invite runs and that this machine reaches it (address, firewall), or ask for a new invite if it has moved",
		ErrUnreachable, strings.Join(n.seat.Known, " or "))
}
