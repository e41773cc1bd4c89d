package checkpoint

import (
	"sync"

	"pnode/planner/plan"
)

// guard decides which unreferenced chunks a sweep may remove. A chunk is safe while it is
// held, and for the rest of a running sweep once its hold is released: the sweep's list
// of references may be older than the reference that replaced the hold.
type guard struct {
	mu   sync.Mutex // guards held and kept
	held map[plan.Hash]int
	kept map[plan.Hash]struct{} // nil unless a sweep runs
}

// hold protects chunks, present or not yet, until as many release calls.
func (g *guard) hold(hashes ...plan.Hash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = map[plan.Hash]int{}
	}
	for _, h := range hashes {
		g.held[h]++
	}
}

func (g *guard) release(hashes ...plan.Hash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range hashes {
		if g.kept != nil {
			g.kept[h] = struct{}{}
		}
		if g.held[h]--; g.held[h] == 0 {
			delete(g.held, h)
		}
	}
}

// sweeping begins or ends the protection of what is released during a sweep. It must begin before the
// references are read.
func (g *guard) sweeping(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept = nil
	if on {
		g.kept = map[plan.Hash]struct{}{}
	}
}

// collect runs remove unless the chunk is protected. No hold begins meanwhile, so a
// writer that holds first and then looks finds the chunk either safe or gone.
func (g *guard) collect(h plan.Hash, remove func() error) (removed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, kept := g.kept[h]; kept || g.held[h] > 0 {
		return false, nil
	}
	return true, remove()
}
