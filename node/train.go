package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/hardware"
	"pnode/node/ingest"
	"pnode/node/leader"
	"pnode/node/plain"
	"pnode/node/weights"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/twofold"
)

// ownMembership is how long the creator's own membership lasts.
const ownMembership = 10 * 365 * 24 * time.Hour

// Sentinel errors of Train and Join.
var (
	// ErrFinished says that there is nothing left to train.
	ErrFinished = errors.New("node: the run is finished")
	// ErrInterrupted ends a node that was asked to end before it took part.
	ErrInterrupted = errors.New("node: interrupted before this node took part in the run; nothing is lost")
	// ErrUnreachable says that no member let this node in, or that no majority is up.
	ErrUnreachable = errors.New("node: cannot reach the run")
	// ErrBadInvite marks what is neither an invite nor an address.
	ErrBadInvite = errors.New("node: bad invite")
	// ErrOtherRun marks an invite or address that leads to another run than the folder's.
	ErrOtherRun = errors.New("node: another run")
	// ErrRefused marks an invite that gives no right to enter, or not any more.
	ErrRefused = errors.New("node: refused")
)

// marked is an error that is also its mark, which its text does not repeat.
type marked struct {
	error
	mark error
}

func (m marked) Unwrap() []error { return []error{m.error, m.mark} }

// finishedError is ErrFinished with the step at which the run was, and who can move its end: this node in dir, or the owners' machines.
type finishedError struct {
	step  plan.Step
	dir   string
	owner bool
	names []string  // of the owners' machines
	lacks []string  // layers that the folder should have of it
	whole string    // where they are, with what helps
	older plan.Step // the newest checkpoint before that the folder has whole; 0: none
}

func (e finishedError) Error() string {
	move := fmt.Sprintf("train it further with `pnode train --resume --steps %d --dir %s`", furtherSteps(e.step), plain.Quote(e.dir))
	if !e.owner {
		move = fmt.Sprintf("train it further on %s with `pnode train --resume --steps %d`, and come back with `%s`",
			cmp.Or(strings.Join(e.names, " or "), "the machine that began it"), furtherSteps(e.step), config.WayBack(e.dir, false))
	}
	if len(e.lacks) == 0 {
		return fmt.Sprintf("%v at step %d: %s. Another run: `pnode train`", ErrFinished, e.step, move)
	}
	if e.older > 0 && e.owner {
		move += fmt.Sprintf(": without these layers it goes on from step %d, the newest that is whole here", e.older)
	}
	return fmt.Sprintf("%v at step %d, and this folder has lost %s of it (%s), in files that `pnode checkpoints verify --dir %s` names: %s. Or %s",
		ErrFinished, e.step, plan.Count(len(e.lacks), "layer"), strings.Join(e.lacks, ", "), plain.Quote(e.dir), e.whole, move)
}

// furtherSteps returns a later end for a finished run, as an example in a command: twice its steps.
func furtherSteps(step plan.Step) plan.Step { return 2 * max(step, 1) }

// lookTime bounds how long the files of a finished model are read before a node says that the run is finished.
const lookTime = 10 * time.Second

// finishedIn returns the error of a node that comes back to a finished run: what its folder lacks of the layers that it held, too, as far as
// that is found in time.
func (m membership) finishedIn(ctx context.Context, dir string, log *slog.Logger) (e finishedError) {
	e = finishedError{step: m.Finished, dir: dir}
	e.owner, e.names = m.owner()
	store, err := OpenStore(dir, log)
	if err != nil {
		return e
	}
	defer store.Close()
	own, err := admission.DecodeCapability(m.Capability)
	all, _ := store.Manifests() // without those that are damaged
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	for _, kept := range all {
		if kept.Step < m.Finished && e.older == 0 && checkpointer.HasWhole(store, kept.Step) {
			e.older = kept.Step
		}
		for _, l := range kept.Layers {
			here := len(l.Holders) == 0 || slices.Contains(l.Holders, own.Peer)
			if kept.Step == m.Finished && err == nil && here && slices.ContainsFunc(l.Chunks, func(h plan.Hash) bool {
				if ctx.Err() != nil {
					return !store.HasChunk(h)
				}
				_, err := store.Chunk(h)
				return err != nil
			}) {
				e.lacks = append(e.lacks, fmt.Sprint(l.Layer))
			}
		}
	}
	if e.whole = m.wholeElsewhere(dir); len(m.Admitted) == 1 {
		e.whole = "no other node had them, so bring the folder back from a backup"
	}
	return e
}

func (finishedError) Unwrap() error { return ErrFinished }

// early returns ErrInterrupted in place of what an interrupt made of a node's start.
func early(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ErrInterrupted
	}
	return err
}

// Train begins a run in cfg.Dir, or resumes the one that is there, and takes part until it
// ends. Cancelling ctx leaves it in good order: with other nodes by handing over, alone by
// a checkpoint.
func Train(ctx context.Context, cfg config.Config, out Output) error {
	if err := makeDir(cfg.Dir); err != nil {
		return err
	}
	kept, err := loadMembership(cfg.Dir)
	switch {
	case err == nil && !cfg.Resume:
		return fmt.Errorf("node: %s already holds run %s: go on with it by --resume, or choose another --dir", cfg.Dir, kept.Run)
	case errors.Is(err, ErrNoRun) && !cfg.Resume:
		return early(ctx, found(ctx, cfg, out))
	case err != nil:
		return err
	}
	return early(ctx, resume(ctx, cfg, kept, nil, out))
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("node: make the run's folder: %w; choose another with --dir", err)
	}
	return nil
}

// found begins a new run: its text goes into chunks, its keys into the folder, its specification
// into a new log.
func found(ctx context.Context, cfg config.Config, out Output) error {
	if weights.KindOf(cfg.Dir) != weights.Nothing {
		return fmt.Errorf("node: %s holds a model: name another folder for the run with --dir", cfg.Dir)
	}
	o := opening{cfg: cfg, founder: true, membership: membership{Listen: cfg.Listen}}
	if err := o.settleAddresses(os.Environ(), out); err != nil {
		return err
	}
	o.tellVisible(out)
	if err := o.prepare(out.Log); err != nil {
		return err
	}
	spec, err := o.specify(ctx, out)
	if err != nil {
		return errors.Join(err, o.store.Close())
	}
	return o.begin(ctx, spec, out)
}

// begin brings a new run's specification into its log, and takes part until the run ends.
func (o *opening) begin(ctx context.Context, spec plan.RunSpec, out Output) error {
	dir := o.cfg.Dir
	n, err := open(ctx, *o, out)
	if err != nil {
		return errors.Join(err, unfound(dir))
	}
	sums, err := settleSums(n.hardware, &spec)
	if err != nil {
		return errors.Join(err, n.Close(), unfound(dir))
	}
	out.tellFolder(dir)
	out.Notice(sums)
	err = n.run(ctx, bootstrap{
		patience: enrollTimeout,
		contact: func(ctx context.Context) error {
			return n.raft.Propose(ctx, consensus.SetRun{Spec: spec, Owner: n.self})
		},
		ready: func(ctx context.Context, _ consensus.State) error { return n.announceInvite(ctx) },
	})
	if n.raft.State().Run == nil {
		err = errors.Join(err, unfound(dir))
	}
	return err
}

// settleSums fixes the order of the new run's sums by the memory of this machine.
func settleSums(machine *hardware.Machine, spec *plan.RunSpec) (text string, err error) {
	room, err := machine.RoomBytes()
	if err != nil {
		return "", err
	}
	return leader.SettleSums(spec, room)
}

// specify makes what a new run consists of. The membership is written last: only then does
// the folder hold a run.
func (o *opening) specify(ctx context.Context, out Output) (plan.RunSpec, error) {
	run := plan.RunID(strings.ToLower(rand.Text()[:16]))
	source := ingest.Source{Config: o.cfg, Store: o.store, OpenModel: openModel, Notice: out.Notice}
	spec, err := source.Spec(ctx, run)
	if err != nil {
		return plan.RunSpec{}, err
	}
	if warning := ingest.Repeats(spec); warning != "" {
		out.Notice(warning)
	}
	owner, err := admission.CreateOwner(o.cfg.Dir)
	if err != nil {
		return plan.RunSpec{}, err
	}
	capability, err := owner.Capability(run, o.identity, ownMembership, time.Now())
	if err != nil {
		return plan.RunSpec{}, err
	}
	o.membership.Run, o.membership.OwnerKey, o.membership.Capability = run, owner.PublicKey(), capability
	return spec, o.membership.save(o.cfg.Dir)
}

// unfound removes the membership of a run whose specification never came into the log: there is
// nothing to come back to.
func unfound(dir string) error {
	if err := twofold.Remove(dir, config.MembershipFile); err != nil {
		return fmt.Errorf("node: take the membership back: %w", err)
	}
	return nil
}
