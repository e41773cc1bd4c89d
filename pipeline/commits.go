package pipeline

import (
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
	mu   sync.Mutex // guards kept
	kept map[plan.Step]keptCommit
}

type keptCommit struct {
	generation plan.Generation
	commit     wire.Commit
}

// Put takes in the commit of a generation's step. Those of later steps are dropped: the run does these again.
func (c *Commits) Put(g plan.Generation, commit wire.Commit) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[plan.Step]keptCommit{}
	}
	for step := commit.Step + 1; c.kept[step].generation != 0; step++ {
		delete(c.kept, step)
	}
	c.kept[commit.Step] = keptCommit{g, commit}
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
