package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"pnode/checkpoint"
	"pnode/node"
	"pnode/node/config"
	"pnode/planner/plan"
)

const (
	// trainSteps of the run's specification are more than any schedule gets to.
	trainSteps = "100000"
	// stuckAfter is how long no step may come before the run has failed.
	stuckAfter = 2 * time.Minute
	// stopWithin bounds the end of the run, stuckStop that of one that has failed: its nodes may wait for each other as before.
	stopWithin = 4 * time.Minute
	stuckStop  = 30 * time.Second
	// settledSteps are committed after a fault before the next one.
	settledSteps = 3
	lookEvery    = 20 * time.Millisecond
	// reportEvery is the time between two lines about the progress.
	reportEvery = 5 * time.Second
)

// Errors of this package.
var (
	// ErrFailed is wrapped by the error of a report that is not good.
	ErrFailed = errors.New("chaos: the run did not survive as it should")
	errStuck  = errors.New("chaos: no step for too long")
	// errInterrupted reports that the schedule was not carried out to its end.
	errInterrupted = errors.New("chaos: interrupted")
)

// Options say what to run.
type Options struct {
	// Dir gets the folders of the nodes and of the runs without faults; it is new or empty, but for these.
	Dir   string
	Nodes int
	// Within is the time of the faults, after a quiet start of Quiet or more.
	Within, Quiet time.Duration
	// Every is the mean time between two faults, Longest the longest absence.
	Every, Longest time.Duration
	// AtOnce is how many nodes may be away at the same time.
	AtOnce int
	Seed   uint64
	// Kinds of faults; none stands for all that the network can have.
	Kinds []Kind
	// Network is where the nodes are, and Line what each has there.
	Network Network
	Line    Line
	// Emulate is a file that describes the device of each node with faults, as that of `pnode train --emulate`; empty is this machine's.
	Emulate string
	// Replicas and Stages are settings of the run with faults alone; empty lets the planner choose.
	Replicas, Stages string
	// Train are settings of both runs, as arguments of `pnode train`.
	Train []string
	// Binary is the pnode executable; Env is added to its environment.
	Binary string
	Env    []string
	// Tell gets a line about the progress.
	Tell func(string)
}

// check refuses options that leave no way on.
func (o Options) check() error {
	switch {
	case o.Nodes < 3 || o.Nodes > config.MaxLocal-1:
		return fmt.Errorf("%w: --nodes is %d: want 3 to %d: with fewer no majority is left when one is away", ErrOptions, o.Nodes, config.MaxLocal-1)
	case o.Within < time.Second:
		return fmt.Errorf("%w: the time of the faults is %v: want 1s or more (--minutes, --seconds)", ErrOptions, o.Within)
	case o.Every < 100*time.Millisecond:
		return fmt.Errorf("%w: --every is %v: want 100ms or more", ErrOptions, o.Every)
	case o.Longest < time.Second:
		return fmt.Errorf("%w: --longest is %v: want 1s or more", ErrOptions, o.Longest)
	case o.AtOnce < 1 || o.AtOnce > lossesOf(o.Nodes):
		return fmt.Errorf("%w: --at-once is %d: want 1 to %d: of %d nodes more take the majority of voters along", ErrOptions, o.AtOnce, lossesOf(o.Nodes), o.Nodes)
	}
	if o.Emulate != "" {
		if _, err := config.LoadEmulation(o.Emulate); err != nil {
			return fmt.Errorf("chaos: %w", err)
		}
	}
	if len(config.NodeDirs(o.Dir)) > 0 {
		return fmt.Errorf("%w: %s holds a run already: name a new folder with --dir", ErrOptions, o.Dir)
	}
	return nil
}

// lossesOf returns how many of the nodes may be lost at once: less than half of the voters, of whom there are at most five.
func lossesOf(nodes int) int {
	if nodes < 5 {
		return 1
	}
	return 2
}

// trainArgs returns the settings that both runs share. Storage is the exact one: either run would choose for itself. With
// another codec losses depend on the cut, and the run without faults has none.
func (o Options) trainArgs() []string {
	return append([]string{"--steps", trainSteps, "--sample-bytes", "0", "--data-limit", "2MB", "--codec", "f32", "--storage", "f32"}, o.Train...)
}

// Run carries a schedule out and compares the result with a run without faults. The report is there whenever steps
// were committed; the error wraps ErrFailed when something in it is wrong. Where ctx ends during the faults the report has
// what was seen until then, and the audit.
func Run(ctx context.Context, o Options) (r Report, err error) {
	if err := o.check(); err != nil {
		return r, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return r, fmt.Errorf("chaos: make the folder: %w", err)
	}
	lines, where, err := openNetwork(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lines.close()) }()
	if o.Kinds, err = possible(o.Kinds, lines); err != nil {
		return r, err
	}
	f, err := newFleet(o, lines)
	if err != nil {
		return r, err
	}
	defer f.end()
	r = Report{Seed: o.Seed, Nodes: o.Nodes, Dir: o.Dir, Network: where, Line: o.Line, Emulated: o.Emulate != ""}
	o.Tell(fmt.Sprintf("seed %d: %d nodes in %s, %s", o.Seed, o.Nodes, o.Dir, where))
	if err := f.found(ctx); err != nil {
		return r, err
	}
	within := stopWithin
	if err := f.breakNodes(ctx, &r); err != nil {
		r.problem("%v", err)
		if errors.Is(err, errStuck) {
			within = stuckStop
		}
	}
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx) // what was seen until then is told
	r.measure(f)
	r.explain(f.heard)
	r.Early = f.early
	o.Tell(fmt.Sprintf("the nodes stop, within %s at most", plan.Duration(within)))
	stopping, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := f.stop(stopping); err != nil {
		r.problem("%v", err)
	}
	if r.Audit, err = node.Audit(f.dirs()); err != nil {
		return r, err
	}
	r.Redone = r.Audit.RedoneSteps()
	if err := r.Audit.Err(); err != nil {
		r.problem("%v", err)
	}
	if r.Audit.Steps > 0 && !interrupted {
		if err := r.compare(ctx, o, f.dirs()); err != nil {
			r.problem("%v", err)
		}
	}
	return r, r.Err()
}

// breakNodes waits for the quiet start, then injects the schedule's faults, each once the one before is mended, and waits until the
// last one is.
func (f *fleet) breakNodes(ctx context.Context, r *Report) error {
	faults := Schedule(f.Seed, f.Nodes, f.Within, f.Every, f.Longest, f.Kinds)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var begun, told time.Time // the end of the quiet start
	var first progress
	since := time.Now() // a step, or the start
	var quiet plan.Step // the newest one when the last node came back
	for {
		select {
		case p := <-f.steps:
			f.took(p)
			since = time.Now()
			if first.Step == 0 {
				first = f.newest
			}
			continue
		case t := <-f.told:
			f.heard = append(f.heard, t)
			continue
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: %d faults had not come; losses and weights are not compared", errInterrupted, len(faults)), f.returnAll())
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(since) > stuckAfter {
			return fmt.Errorf("%w: none after step %d in %s", errStuck, f.newest.Step, plan.Duration(stuckAfter))
		}
		if err := f.mend(r, now); err != nil {
			return err
		}
		if begun.IsZero() && first.Step > 0 && now.Sub(first.at) > f.Quiet && f.newest.Step >= first.Step+settledSteps {
			begun, quiet = now, f.newest.Step
			r.begin(first, f.newest)
		}
		if still := stillText(f.newest.Step, now.Sub(since)); now.Sub(told) > reportEvery && (!begun.IsZero() || still != "") {
			told = now
			text := "quiet start" + still
			if !begun.IsZero() {
				text = fmt.Sprintf("%s of %s: step %d, %s, %s, %d to come%s", plan.Duration(now.Sub(begun).Round(time.Second)), plan.Duration(f.Within), f.newest.Step, nodesUp(f.count, f.Nodes),
					plan.Count(len(r.Faults), "fault"), len(faults), still)
			}
			f.Tell(text)
		}
		if begun.IsZero() {
			continue
		}
		absent := f.absentNodes()
		settled := absent == 0 && f.newest.Step >= quiet+settledSteps
		due := len(faults) > 0 && now.Sub(begun) >= faults[0].At
		switch {
		case settled && now.Sub(begun) >= f.Within:
			return nil
		case due && (settled || 0 < absent && absent < f.AtOnce && f.isFree(faults[0])):
			x := Injected{Fault: faults[0], Step: f.newest.Step, Leader: f.members[faults[0].Node].leads(ctx), generation: f.newest.Generation, at: time.Now()}
			f.Tell(fmt.Sprintf("step %d: %v for %s", x.Step, x.Fault, plan.Duration(x.Away)))
			r.Faults = append(r.Faults, x)
			if err := f.inject(x.Fault); err != nil {
				return fmt.Errorf("chaos: %v: %w", x.Fault, err)
			}
			faults = faults[1:]
		}
		if f.absentNodes() > 0 {
			quiet = f.newest.Step
		}
	}
}

// stillText says for how long no step has come, and when the run has failed; empty where one came lately.
func stillText(newest plan.Step, still time.Duration) string {
	if still < 2*reportEvery {
		return ""
	}
	return fmt.Sprintf("; none after step %d for %s: the run has failed after %s", newest, plan.Duration(still.Round(time.Second)), plan.Duration(stuckAfter))
}

// mend brings nodes back whose time has come, and starts those again that ended by themselves.
func (f *fleet) mend(r *Report, now time.Time) error {
	for _, m := range f.members {
		if err := f.goOn(m, now); err != nil {
			return fmt.Errorf("chaos: bring node %d back: %w", m.number, err)
		}
	}
	for _, m := range f.unexpected() {
		why := lastLine(m.dir + logFile)
		f.changed(-1)
		switch {
		case m.filled && strings.Contains(why, checkpoint.ErrDiskFull.Error()): // a plan needed a state to be kept
			r.NoRoom = append(r.NoRoom, why)
			f.Tell(fmt.Sprintf("node %d ended for want of room: %s", m.number, why))
			if m.told = m.absent != nil && m.absent.Kind == Full; m.told { // it comes back when there is room
				continue
			}
		case m.rotted: // a store that cannot be mended is refused with a sentence that says to join anew
			r.Refused = append(r.Refused, why)
			f.Tell(fmt.Sprintf("node %d does not go on with its damaged store, and joins anew: %s", m.number, why))
			if err := wipe(m.dir); err != nil {
				return err
			}
			m.rotted = false
		default:
			return fmt.Errorf("%w: node %d ended by itself: %s", ErrFailed, m.number, why)
		}
		if err := f.enter(m); err != nil {
			return err
		}
	}
	return nil
}
