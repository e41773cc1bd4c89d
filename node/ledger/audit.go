package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pnode/planner/plan"
)

// Node is a ledger with the folder that it is from, and with what else is there.
type Node struct {
	Dir     string
	Reached Reached
	Contents
}

// name returns what the node is called.
func (n Node) name() string { return cmp.Or(n.Head.Name, n.Head.Peer.Short(), n.Dir) }

// Size says how large a step of the run is.
type Size struct {
	Layers, Micros int
	MicroBatch     int // samples of a micro-batch
}

// SizeOf returns the size of a run's steps.
func SizeOf(run plan.RunSpec) Size {
	return Size{run.Model.Layers(), run.Train.Micros, run.Train.MicroBatch}
}

// report holds what one worker of a node says of a step.
type report struct {
	Entry
	node Node
}

// hearsay holds what a node says that a member told of a step.
type hearsay struct {
	Told
	node Node
}

// audit holds what all ledgers say together.
type audit struct {
	size    Size
	names   map[plan.PeerID]string
	plans   map[plan.Generation]Planned
	reports map[Position][]report
	told    map[Position][]hearsay
	steps   map[plan.Generation][]plan.Step // with reports, or told of, or counted by an outer step, ascending
	rounds  map[plan.Generation][]Outer     // ascending
	whose   map[Position]string             // who has an outer step, by the step after which its round began
	checked map[string]tally                // by the works of a step
	// lineages are of the nodes that plans are from.
	lineages map[plan.Generation]plan.Partings
	Report
}

// Audit compares the ledgers of all nodes of a run.
func Audit(size Size, nodes []Node) Report {
	a := audit{
		size: size, names: map[plan.PeerID]string{}, plans: map[plan.Generation]Planned{}, reports: map[Position][]report{}, told: map[Position][]hearsay{},
		steps: map[plan.Generation][]plan.Step{}, checked: map[string]tally{}, lineages: map[plan.Generation]plan.Partings{},
		rounds: map[plan.Generation][]Outer{}, whose: map[Position]string{},
	}
	nodes = a.settle(nodes)
	for _, n := range nodes {
		a.gather(n)
	}
	for where := range a.reports {
		if a.recorded(where) && !a.local(where.Generation) {
			a.steps[where.Generation] = append(a.steps[where.Generation], where.Step)
		}
	}
	for where := range a.told {
		if !a.recorded(where) && !a.local(where.Generation) {
			a.steps[where.Generation] = append(a.steps[where.Generation], where.Step)
		}
	}
	a.meet()
	for _, steps := range a.steps {
		slices.Sort(steps)
	}
	counted := a.lineage()
	a.count(counted)
	a.streams()
	a.ends(nodes, counted)
	a.compare()
	a.judge()
	return a.Report
}

// recorded reports whether a worker that took a commit has written it down.
func (a *audit) recorded(where Position) bool {
	return slices.ContainsFunc(a.reports[where], func(r report) bool { return !r.Work.Replayed() })
}

// gather takes in what one node kept and has not given up.
func (a *audit) gather(n Node) {
	a.Nodes = append(a.Nodes, NodeReport{Name: n.name(), Dir: n.Dir, Peer: n.Head.Peer, Entries: len(n.Entries), DamagedBytes: n.DamagedBytes})
	if n.Head.Run == "" && n.DamagedBytes == 0 {
		return // the node never learned a plan
	}
	a.names[n.Head.Peer] = n.name()
	if a.Run = cmp.Or(a.Run, n.Head.Run); n.Head.Run != a.Run || n.Foreign > 0 {
		a.problem("%s: the ledger is of another run than %s: name the folders of one run's nodes", n.Dir, a.Run)
		return
	}
	for _, p := range n.Plans {
		by := n.name()
		if p.By != "" {
			by += ", told by " + a.called(p.By)
		}
		before, known := a.plans[p.Plan.Generation]
		if known && !slices.Equal(before.Plan.Encode(), p.Plan.Encode()) {
			more := ""
			if _, parted := n.Lineage.Since(a.lineages[p.Plan.Generation]); parted {
				more = ": the run was recovered between them; start the node that was away once, so that it follows and says what does not count"
			}
			a.problem("%s has another plan of generation %d than the others%s", by, p.Plan.Generation, more)
		}
		if !known || p.By == "" {
			a.plans[p.Plan.Generation], a.lineages[p.Plan.Generation] = p, n.Lineage
		}
	}
	for _, e := range n.Entries {
		where := Position{e.Work.Generation, e.Step}
		a.reports[where] = append(a.reports[where], report{e, n})
	}
	for _, o := range n.Outer {
		a.outer(o, n)
	}
	for _, t := range n.Told {
		a.told[t.Position()] = append(a.told[t.Position()], hearsay{t, n})
	}
}

// lineage returns the generation that counts for each committed step: of the newest one all steps, of the
// one before it those up to the other's start, and so on.
func (a *audit) lineage() map[plan.Step]plan.Generation {
	counted := map[plan.Step]plan.Generation{}
	generations := slices.Sorted(maps.Keys(a.steps))
	slices.Reverse(generations)
	var after plan.Generation // the one whose start bounds the steps of those before it; 0 for none
	begin := plan.Step(0)     // its start
	for _, g := range generations {
		p, known := a.plans[g]
		if !known {
			a.problem("the plan of generation %d is in no ledger: name the folders of all nodes", g)
			continue
		}
		steps := a.steps[g]
		last := steps[len(steps)-1]
		if after == 0 {
			a.Steps = last
		} else {
			if last > begin {
				a.redone(g, after, max(begin, p.Plan.Start)+1, last)
			}
			last = begin
		}
		if last <= p.Plan.Start { // none of its steps count
			continue
		}
		for _, s := range steps {
			if p.Plan.Start < s && s <= last {
				counted[s] = g
			}
		}
		a.Generations = append(a.Generations, GenerationReport{g, p.Plan.Start + 1, last, a.nodesOf(p.Plan)})
		after, begin = g, p.Plan.Start
	}
	slices.Reverse(a.Generations)
	return counted
}

// redone notes steps of a generation that a later one computed again, and why there was a later one.
func (a *audit) redone(g, after plan.Generation, first, last plan.Step) {
	why := "another plan"
	var gone []string
	for _, p := range a.plans[g].Plan.Peers() {
		if !a.plans[after].Plan.Places(p) {
			gone = append(gone, a.called(p))
		}
	}
	if len(gone) > 0 {
		why = "a plan without " + strings.Join(gone, ", ")
	}
	a.Redone = append(a.Redone, Redone{g, after, first, last, fmt.Sprintf("generation %d, %s, began after step %d", after, why, first-1)})
}

func (a *audit) called(p plan.PeerID) string { return cmp.Or(a.names[p], p.Short()) }

func (a *audit) nodesOf(p plan.Plan) (names []string) {
	for _, peer := range p.Peers() {
		names = append(names, a.called(peer))
	}
	return names
}

// tally says how often a step's micro-batches entered.
type tally struct{ lost, doubled, recorded int }

// count tallies every committed step.
func (a *audit) count(counted map[plan.Step]plan.Generation) {
	before := plan.Step(0)
	for _, s := range slices.Sorted(maps.Keys(counted)) {
		g := counted[s]
		if missing := s - before - 1; missing > 0 {
			a.Lost += int(missing) * a.size.Micros * a.size.MicroBatch
			a.problem("%s before step %d missing in all ledgers: name the folders of all nodes, those that left the run too", plan.Count(int(missing), "step"), s)
		}
		before = s
		where := Position{g, s}
		p := a.plans[g].Plan
		active := a.active(p, s)
		if tellers := a.tellers(where); !a.local(g) && !a.recorded(where) {
			a.Told++
			a.ToldByOne += count(tellers == 1)
		}
		t := a.tally(p, active, a.reports[where])
		a.Samples += a.micros(p, active) * a.size.MicroBatch
		a.Recorded += t.recorded * a.size.MicroBatch
		a.Lost += t.lost * a.size.MicroBatch
		a.Doubled += t.doubled * a.size.MicroBatch
		if t.lost+t.doubled > 0 {
			a.problem("step %d of generation %d: %d samples lost, %d doubled", s, g, t.lost*a.size.MicroBatch, t.doubled*a.size.MicroBatch)
		}
	}
}

// tellers counts the members of its plan that told of a commit. Others cannot have taken it.
func (a *audit) tellers(where Position) int {
	tellers := map[plan.PeerID]bool{}
	for _, w := range a.told[where] {
		if p := a.plans[where.Generation].Plan; !p.Places(w.By) || where.Step <= p.Start {
			a.problem("%s: %s told of step %d of generation %d, which it cannot have taken", w.node.name(), a.called(w.By), where.Step, where.Generation)
			continue
		}
		tellers[w.By] = true
	}
	return len(tellers)
}

// tally counts micro-batches that did not enter some layer's gradient, or entered one twice. A worker of the plan without a
// report is vouched for by the commit: it had its replica's share of the step. With local steps those of replicas that are not active do not count.
func (a *audit) tally(p plan.Plan, active map[plan.Replica]bool, reports []report) tally {
	works := map[plan.WorkerID]*Work{}
	key := fmt.Sprint(p.Generation, active)
	for _, r := range reports {
		if !r.Work.Replayed() {
			works[r.Work.Worker] = r.Work
		}
		if shared, err := p.WithShares(r.Work.Shares); err == nil {
			p = shared // as the step had them
		}
	}
	workers := p.Workers()
	for _, id := range workers {
		key += fmt.Sprintf(" %p", works[id]) // each ledger has a work once, until it changes
	}
	if t, known := a.checked[key]; known {
		return t
	}
	entered := make([]int, a.size.Layers*a.size.Micros)
	recorded := make([]bool, len(entered))
	var t tally
	add := func(layers plan.LayerRange, m plan.Micro, recording bool) {
		if layers.First < 0 || layers.End > a.size.Layers || m < 0 || int(m) >= a.size.Micros {
			t.doubled++ // what the run does not have
			return
		}
		for l := layers.First; l < layers.End; l++ {
			i := int(m)*a.size.Layers + l
			entered[i]++
			recorded[i] = recorded[i] || recording
		}
	}
	for _, id := range workers {
		if active != nil && !active[p.StagesOf(id)[0].Replica] {
			delete(works, id)
			continue
		}
		if w := works[id]; w != nil {
			for _, s := range w.Stages {
				for _, m := range s.Micros {
					add(s.Layers, m, true)
				}
			}
			delete(works, id)
			continue
		}
		for _, at := range p.StagesOf(id) {
			pipe := p.Replicas[at.Replica]
			for i := range min(pipe.Micros, a.size.Micros) {
				add(p.At(at).Layers, pipe.FirstMicro+plan.Micro(i), false)
			}
		}
	}
	t.doubled += len(works) // of workers that the plan does not have
	for m := range a.size.Micros {
		if active != nil && !a.has(p, active, m) {
			t.doubled += count(slices.Max(entered[m*a.size.Layers:][:a.size.Layers]) > 0) // by who had no part in it
			continue
		}
		layers := entered[m*a.size.Layers:][:a.size.Layers]
		t.lost += count(slices.Contains(layers, 0))
		t.doubled += count(slices.Max(layers) > 1)
		t.recorded += count(!slices.Contains(recorded[m*a.size.Layers:][:a.size.Layers], false))
	}
	a.checked[key] = t
	return t
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// statement is a commit with who says so, and which replica made it on its own.
type statement struct {
	Committed
	by      string
	replica *plan.Replica
}

// about says what statements are of that should be the same: of local steps, and where rounds may have ended otherwise, those of one generation.
type about struct {
	Position
	replica plan.Replica // from 1; 0: of all
}

// statements returns what is said of a step of a generation: by those who took the commit, then by those who were told of it.
func (a *audit) statements(where Position) (all []statement) {
	for _, r := range a.reports[where] {
		all = append(all, statement{Committed{where.Generation, r.Commit}, r.node.name(), r.Work.Replica})
	}
	for _, w := range a.told[where] {
		all = append(all, statement{w.Committed, fmt.Sprintf("%s, told by %s", w.node.name(), a.called(w.By)), nil})
	}
	return all
}

// compare names nodes that tell different commits of one step, in one generation or after it was computed again.
func (a *audit) compare() {
	places := map[Position]bool{}
	for where, reports := range a.reports {
		places[where] = true
		for _, r := range reports {
			a.Replayed += count(r.Work.Replayed())
		}
	}
	for where := range a.told {
		places[where] = true
	}
	first := map[about]statement{}
	for _, where := range slices.SortedFunc(maps.Keys(places), func(x, y Position) int {
		return cmp.Or(cmp.Compare(x.Step, y.Step), cmp.Compare(x.Generation, y.Generation))
	}) {
		for _, s := range a.statements(where) {
			of := about{Position: Position{Step: where.Step}}
			if len(a.rounds) > 0 {
				of.Generation = where.Generation
			}
			if s.replica != nil {
				of.Generation, of.replica = where.Generation, 1+*s.replica
			}
			one, known := first[of]
			if !known {
				first[of] = s
			} else if one.Commit != s.Commit {
				a.Differences = append(a.Differences, Difference{
					where.Step, one.Generation, one.by, fmt.Sprint(one.Loss()), s.Generation, s.by, fmt.Sprint(s.Loss()),
				})
			}
		}
	}
}

// judge adds what is wrong in all.
func (a *audit) judge() {
	if a.Steps == 0 {
		a.problem("no committed step is in a ledger: has the run begun?")
	}
	for _, d := range a.Differences {
		a.problem("step %d has loss %s in generation %d on %s, and %s in generation %d on %s", d.Step, d.Loss, d.Generation, d.Node, d.OtherLoss, d.OtherGeneration, d.OtherNode)
	}
	for _, n := range a.Nodes {
		if n.DamagedBytes > 0 {
			a.problem("%s: %d bytes of the ledger are damaged", n.Dir, n.DamagedBytes)
		}
	}
}
