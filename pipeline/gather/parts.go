package gather

import (
	"slices"
	"sync"

	"pnode/pipeline/meeting"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// parts has what a replica's coordinator knows of a round's messages. Other workers have one too, which nobody is told of.
type parts struct {
	rounds  Rounds
	mu      sync.Mutex // guards the rest
	due     bool
	hashes  [][][]plan.Hash // by replica whose messages they are, and stage of the own replica; nil: some are missing
	reports []wire.OuterReport
	have    plan.Gathered // as it was said last
}

func newParts(g *Gatherer, from plan.Step) *parts {
	n := len(g.Plan.Replicas)
	p := &parts{rounds: g.Rounds, hashes: make([][][]plan.Hash, n), reports: make([]wire.OuterReport, n)}
	for q := range p.hashes {
		p.hashes[q] = make([][]plan.Hash, len(g.Plan.Replicas[g.Replica].Stages))
	}
	p.have = plan.Gathered{Generation: g.Plan.Generation, From: from, Replica: g.Replica, Parts: make([]plan.Part, n)}
	return p
}

// put takes in that a stage has all of a replica's messages.
func (p *parts) put(of plan.Replica, at plan.Stage, hashes []plan.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hashes[of][at] = append([]plan.Hash{}, hashes...) // a stage that learns nothing has none, which is not nil
	p.tell()
}

// report takes in how a replica's inner steps went.
func (p *parts) report(of plan.Replica, r wire.OuterReport, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports[of], p.due = r, p.due || due
	p.tell()
}

// tell says what is here, once what the replica has sent itself is. Callers hold mu.
func (p *parts) tell() {
	have := p.have
	have.Due, have.Parts = p.due, make([]plan.Part, len(p.hashes))
	for q, stages := range p.hashes {
		if steps := p.reports[q].Steps(); steps > 0 && !slices.ContainsFunc(stages, func(h []plan.Hash) bool { return h == nil }) {
			have.Parts[q] = plan.Part{Steps: steps, Sum: meeting.Sum(wire.AppendOuterReport(nil, p.reports[q]), slices.Concat(stages...))}
		}
	}
	if have.Parts[have.Replica].Steps == 0 || slices.Equal(have.Parts, p.have.Parts) {
		return
	}
	p.have = have
	p.rounds.Have(have)
}

// said returns how the replicas' inner steps went.
func (p *parts) said() []wire.OuterReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reports)
}
