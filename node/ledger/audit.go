package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pnode/planner/plan"
)

// Node is a ledger with the folder that it is from.
type Node struct {
	Dir string
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

// at is a step of a generation.
type at struct {
	plan.Generation
	plan.Step
}

// report holds what one worker of a node says of a step.
type report struct {
	Entry
	node Node
}

// audit holds what all ledgers say together.
type audit struct {
	size    Size
	names   map[plan.PeerID]string
	plans   map[plan.Generation]Planned
	reports map[at][]report
	steps   map[plan.Generation][]plan.Step // with reports, ascending
	checked map[string]tally                // by the works of a step
	Report
}

// Audit compares the ledgers of all nodes of a run.
func Audit(size Size, nodes []Node) Report {
	a := audit{
		size: size, names: map[plan.PeerID]string{}, plans: map[plan.Generation]Planned{}, reports: map[at][]report{},
		steps: map[plan.Generation][]plan.Step{}, checked: map[string]tally{},
	}
	for _, n := range nodes {
		a.gather(n)
	}
	for where, reports := range a.reports {
		if slices.ContainsFunc(reports, func(r report) bool { return !r.Work.Replayed() }) {
			a.steps[where.Generation] = append(a.steps[where.Generation], where.Step)
		}
	}
	for _, steps := range a.steps {
		slices.Sort(steps)
	}
	counted := a.lineage()
	a.count(counted)
	a.compare()
	a.judge()
	return a.Report
}

// gather takes in what one node kept.
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
		before, known := a.plans[p.Plan.Generation]
		if known && !slices.Equal(before.Plan.Encode(), p.Plan.Encode()) {
			a.problem("%s has another plan of generation %d than the others", n.name(), p.Plan.Generation)
		}
		a.plans[p.Plan.Generation] = p
	}
	for _, e := range n.Entries {
		where := at{e.Work.Generation, e.Step}
		a.reports[where] = append(a.reports[where], report{e, n})
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
		t := a.tally(a.plans[g].Plan, a.reports[at{g, s}])
		a.Samples += a.size.Micros * a.size.MicroBatch
		a.Recorded += t.recorded * a.size.MicroBatch
		a.Lost += t.lost * a.size.MicroBatch
		a.Doubled += t.doubled * a.size.MicroBatch
		if t.lost+t.doubled > 0 {
			a.problem("step %d of generation %d: %d samples lost, %d doubled", s, g, t.lost*a.size.MicroBatch, t.doubled*a.size.MicroBatch)
		}
	}
}

// tally counts micro-batches that did not enter some layer's gradient, or entered one twice. A worker of the plan without a
// report is vouched for by the commit: it had its replica's share of the step.
func (a *audit) tally(p plan.Plan, reports []report) tally {
	works := map[plan.WorkerID]*Work{}
	key := fmt.Sprint(p.Generation)
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

// compare names nodes that tell different commits of one step, in one generation or after it was computed again.
func (a *audit) compare() {
	first := map[plan.Step]report{}
	for _, where := range slices.SortedFunc(maps.Keys(a.reports), func(x, y at) int {
		return cmp.Or(cmp.Compare(x.Step, y.Step), cmp.Compare(x.Generation, y.Generation))
	}) {
		for _, r := range a.reports[where] {
			a.Replayed += count(r.Work.Replayed())
			one, known := first[where.Step]
			if !known {
				first[where.Step] = r
			} else if one.Commit != r.Commit {
				a.Differences = append(a.Differences, Difference{
					where.Step, one.Work.Generation, one.node.name(), fmt.Sprint(one.Loss()), r.Work.Generation, r.node.name(), fmt.Sprint(r.Loss()),
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
