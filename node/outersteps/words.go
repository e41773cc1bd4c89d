package outersteps

import (
	"slices"
	"sync"

	"pnode/node/gossip"
	"pnode/planner/plan"
)

// Words has what heartbeats tell of the replicas here: what those coordinated here have handed in, and the outer steps of all, each the newest. The zero value is ready. Its methods may be called concurrently.
type Words struct {
	mu  sync.Mutex // guards the rest
	all []gossip.HandedIn
	met met
	// found are of one generation, the newest that has any.
	found []gossip.FoundFault
}

// hear takes in what a replica has.
func (w *Words) hear(g plan.Gathered) {
	word := gossip.HandedIn{Generation: g.Generation, From: g.From, Replica: g.Replica, Steps: g.Parts[g.Replica].Steps}
	for q, part := range g.Parts {
		if part.Steps == 0 {
			word.Lacks = append(word.Lacks, plan.Replica(q))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(old gossip.HandedIn) bool { return old.Generation != g.Generation || old.Replica == g.Replica })
	w.all = append(w.all, word)
}

// Of returns what the replicas here have handed in of a generation.
func (w *Words) Of(g plan.Generation) []gossip.HandedIn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.all), func(word gossip.HandedIn) bool { return word.Generation != g })
}

// Accuse takes in what a member of another replica has sent in a round that no honest one does.
func (w *Words) Accuse(f gossip.FoundFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = slices.DeleteFunc(w.found, func(old gossip.FoundFault) bool { return old.Generation != f.Generation })
	if !slices.ContainsFunc(w.found, func(old gossip.FoundFault) bool { return old.Accused == f.Accused }) && len(w.found) < gossip.MaxFound {
		w.found = append(w.found, f)
	}
}

// Found returns what was found wrong with other replicas in rounds of a generation.
func (w *Words) Found(g plan.Generation) []gossip.FoundFault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.found), func(f gossip.FoundFault) bool { return f.Generation != g })
}
