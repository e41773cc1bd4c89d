package outersteps

import (
	"slices"
	"sync"

	"pnode/node/gossip"
	"pnode/pipeline/gather/seals"
	"pnode/planner/plan"
)

// Words has what heartbeats tell of the replicas here: what those coordinated here have handed in, and the outer steps of all, each the newest. Of what they
// have handed in it can show what it follows from. The zero value is ready. Its methods may be called concurrently.
type Words struct {
	mu  sync.Mutex // guards the rest
	all []handedIn
	met met
	// found are of one generation, the newest that has any.
	found []gossip.FoundFault
}

// handedIn has what a coordinator here has handed in, and what shows it, by replica.
type handedIn struct {
	gossip.HandedIn
	shown []seals.Exhibit
}

// hear takes in what a replica has.
func (w *Words) hear(g plan.Gathered, shown []seals.Exhibit) {
	word := gossip.HandedIn{Generation: g.Generation, From: g.From, Replica: g.Replica, Steps: g.Parts[g.Replica].Steps}
	for q, part := range g.Parts {
		if part.Steps == 0 {
			word.Lacks = append(word.Lacks, plan.Replica(q))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(old handedIn) bool { return old.Generation != g.Generation || old.Replica == g.Replica })
	w.all = append(w.all, handedIn{word, shown})
}

// Of returns what the replicas here have handed in of a generation.
func (w *Words) Of(g plan.Generation) (all []gossip.HandedIn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, word := range w.all {
		if word.Generation == g {
			all = append(all, word.HandedIn)
		}
	}
	return all
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
