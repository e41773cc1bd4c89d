package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// keptCommits bounds the steps whose commits are kept: 100 bytes each.
const keptCommits = 4096

// Commits keeps the newest commits that the workers of a node took, over generations: a worker elsewhere may lack
// one of them, and a replay needs those of all its steps. A nil Commits keeps none. Its methods may be called
// concurrently.
type Commits struct {
	mu   sync.Mutex // guards the rest
	kept map[plan.Step]keptCommit
	last lastCommit
	// settled is closed, and replaced, when last changes; nil while nobody waits.
	settled chan struct{}
}

// lastCommit is the newest commit that came here of a generation's lost coordinator, as package wire encodes it; none did where
// it is empty.
type lastCommit struct {
	generation plan.Generation
	encoded    []byte
}

type keptCommit struct {
	generation plan.Generation
	commit     wire.Commit
	// following is the schedule of the next step, in its text form; empty while it is the plan's.
	following string
	// unmeasured says that no worker has float32 shadows in the next step.
	unmeasured bool
}

// Put takes in the commit of a generation's step. Those of later steps are dropped: the run does these again. One that is here
// already changes nothing: a lost coordinator's substitute repeats it.
func (c *Commits) Put(g plan.Generation, commit wire.Commit) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.kept[commit.Step]; old.generation == g && bytes.Equal(wire.AppendCommit(nil, old.commit), wire.AppendCommit(nil, commit)) {
		return
	}
	if c.kept == nil {
		c.kept = map[plan.Step]keptCommit{}
	}
	for step := commit.Step + 1; c.kept[step].generation != 0; step++ {
		delete(c.kept, step)
	}
	kept := keptCommit{g, commit, commit.Next, unmeasured(false, commit)}
	if before := c.kept[commit.Step-1]; commit.Next == "" && before.generation == g {
		kept.following, kept.unmeasured = before.following, unmeasured(before.unmeasured, commit)
	}
	c.kept[commit.Step] = kept
	if commit.Step >= keptCommits {
		delete(c.kept, commit.Step-keptCommits)
	}
}

// At returns the commit of a step and the generation that made it, if it is kept.
func (c *Commits) At(step plan.Step) (plan.Generation, wire.Commit, bool) {
	if c == nil {
		return 0, wire.Commit{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kept[step]
	return k.generation, k.commit, k.generation != 0
}

// UpTo returns the commits of the steps after a plan's start, up to another one.
func (c *Commits) UpTo(last plan.Step, p plan.Plan) (commits []wire.Commit, err error) {
	for step := p.Start + 1; step <= last; step++ {
		g, commit, ok := c.At(step)
		if !ok || g != p.Generation {
			return nil, fmt.Errorf("pipeline: the commit of step %d is not here", step)
		}
		commits = append(commits, commit)
	}
	return commits, nil
}

// Repeated returns what a lost coordinator's substitute repeats that begins with a plan's start. newest is the newest commit that anybody has,
// and is of a step. Where that is the start's it is for Config.Taken, since some may lack it; else all since the start are for Config.Committed. ask
// returns one that did not come here: the lost one may have evaluated the finished model without this node.
func (c *Commits) Repeated(step plan.Step, newest wire.Commit, p plan.Plan, ask func(plan.Step) (wire.Commit, error)) (taken wire.Commit, committed []wire.Commit, err error) {
	switch {
	case step < p.Start:
		return wire.Commit{}, nil, nil
	case step == p.Start:
		return newest, nil, nil
	}
	for before := p.Start + 1; before < step; before++ {
		g, commit, ok := c.At(before)
		if !ok || g != p.Generation {
			if commit, err = ask(before); err != nil {
				return wire.Commit{}, nil, fmt.Errorf("pipeline: the commit of step %d: %w", before, err)
			}
		}
		committed = append(committed, commit)
	}
	return wire.Commit{}, append(committed, newest), nil
}

// From returns a plan as its workers went on with it after a step: with that step as its start, and the schedule that commits
// have named by then.
func (c *Commits) From(step plan.Step, p plan.Plan) (plan.Plan, error) {
	if step > p.Start {
		c.mu.Lock()
		kept := c.kept[step]
		c.mu.Unlock()
		if kept.generation != p.Generation {
			return p, fmt.Errorf("pipeline: the commit of step %d is not here", step)
		}
		if kept.following != "" {
			choice, err := plan.ParseScheduleChoice(kept.following)
			if err == nil {
				p, err = p.WithSchedule(choice)
			}
			if err != nil {
				return p, fmt.Errorf("%w: %w", ErrBadConfig, err)
			}
		}
	}
	p.Start = step
	return p, nil
}

// Unmeasured reports whether no worker has float32 shadows any more after a generation's step, for Config.Unmeasured.
func (c *Commits) Unmeasured(g plan.Generation, step plan.Step) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.kept[step]
	return kept.generation == g && kept.unmeasured
}

// SecondTry reports whether the activations of the step after one of a plan's generation are those of a second try, for Config.SecondTry. It is
// false after the step that the generation began with.
func (c *Commits) SecondTry(p plan.Plan, step plan.Step) bool {
	g, commit, ok := c.At(step)
	return ok && g == p.Generation && secondTry(p, commit)
}

// Settle notes the newest commit, encoded, that came of a generation's coordinator, which is lost: nothing that it sends is
// taken here from now on. Empty where none came.
func (c *Commits) Settle(g plan.Generation, encoded []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = lastCommit{g, encoded}
	if c.settled != nil {
		close(c.settled)
		c.settled = nil
	}
}

// Settled blocks until Settle was called for a generation, and returns what it noted. The error is the context's.
func (c *Commits) Settled(ctx context.Context, g plan.Generation) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.last.generation != g {
		if c.settled == nil {
			c.settled = make(chan struct{})
		}
		settled := c.settled
		c.mu.Unlock()
		select {
		case <-settled:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return nil, ctx.Err()
		}
	}
	return c.last.encoded, nil
}
