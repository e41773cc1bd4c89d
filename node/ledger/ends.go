package ledger

import (
	"fmt"

	"pnode/planner/plan"
)

// Reached says how far a run came by what a node's folder holds besides the ledger. The zero value says nothing.
type Reached struct {
	Saved    Position  // newest checkpoint
	Finished plan.Step // where the run was finished
}

// end returns the newest commit in a ledger.
func (c Contents) end() (end Position) {
	m := newMemory()
	for _, e := range c.Entries {
		if e.Work.Replica == nil {
			m.heard(Committed{e.Work.Generation, e.Commit})
		}
	}
	for _, o := range c.Outer {
		m.merged(o)
	}
	for _, t := range c.Told {
		m.heard(t.Committed)
	}
	return m.end
}

// ends compares the end of each ledger with what says how far its node came: its folder and, where it had a part in a plan, the
// other ledgers. A cut leaves no other trace, since the records before it are whole. What the others prove is noted, the rest wrong.
func (a *audit) ends(nodes []Node, counted map[plan.Step]plan.Generation) {
	lost := plan.Step(0)
	for i, n := range nodes {
		if n.Foreign > 0 || n.Head.Run != "" && n.Head.Run != a.Run {
			continue
		}
		own, at, says := n.end(), n.Reached.Saved, "its checkpoint is of"
		if n.gaveUp(at.Generation) {
			at = Position{}
		}
		if n.Reached.Finished > at.Step {
			at, says = Position{max(own.Generation, at.Generation), n.Reached.Finished}, "its run was finished at"
		}
		if other := a.part(n.Head.Peer); other.Compare(at) > 0 && other.Step > own.Step+1 { // one may be under way, or its node ended
			at, says = other, "the other ledgers have it take part up to"
		}
		start := at.Step // of the generation, as long as nothing is known of it
		if p, known := a.plans[at.Generation]; known {
			start = p.Plan.Start
		}
		if own.Compare(at) >= 0 || own.Step >= at.Step && start >= at.Step {
			continue
		}
		first, missing := own.Step+1, max(at.Step, a.Steps)-a.Steps
		if own.Generation < at.Generation {
			first = min(first, start+1)
		}
		beyond := missing
		for s := first; s <= min(at.Step, a.Steps); s++ {
			g, proven := counted[s]
			missing += plan.Step(count(!proven || s > start && g < at.Generation))
			beyond += plan.Step(count(proven && s > start && g < at.Generation))
		}
		a.Nodes[i].Short = true
		text := fmt.Sprintf("the ledger of %s ends at step %d, %s step %d", n.name(), own.Step, says, at.Step)
		if missing == 0 {
			a.Notes = append(a.Notes, fmt.Sprintf("%s: the other ledgers prove the steps from %d on", text, first))
			continue
		}
		a.problem("%s: the records of %s are lost: name the folders of the run's other nodes too, which have the same steps", text, plan.Count(int(missing), "step"))
		lost = max(lost, beyond)
	}
	a.Lost += int(lost) * a.size.Micros * a.size.MicroBatch
}

// part returns the newest commit that another node wrote down of a plan in which a member had a part that nobody took over.
func (a *audit) part(peer plan.PeerID) (newest Position) {
	for where, reports := range a.reports {
		if a.plans[where.Generation].Plan.Local != nil {
			continue // whoever is left out makes steps that do not count
		}
		if where.Compare(newest) <= 0 || peer == "" || !a.plans[where.Generation].Plan.Places(peer) {
			continue
		}
		taken, replaced := false, false
		for _, r := range reports {
			taken = taken || !r.Work.Replayed()
			replaced = replaced || r.Work.Replayed() && r.Work.Worker.Peer == peer
		}
		if taken && !replaced {
			newest = where
		}
	}
	return newest
}
