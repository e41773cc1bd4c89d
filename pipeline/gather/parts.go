package gather

import (
	"slices"
	"sync"

	"pnode/pipeline/gather/seals"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// parts has what a replica's coordinator knows of a round's messages. Other workers have one too, which nobody is told of.
type parts struct {
	rounds  Rounds
	mu      sync.Mutex // guards the rest
	due     bool
	sealed  [][][]wire.Sealed // by replica whose messages they are, and stage of the own replica; nil: some are missing
	reports []wire.OuterReport
	shown   []seals.Exhibit // by replica; without layers while something is missing
	have    plan.Gathered   // as it was said last
}

func newParts(g *Gatherer, from plan.Step) *parts {
	n := len(g.Plan.Replicas)
	p := &parts{rounds: g.Rounds, sealed: make([][][]wire.Sealed, n), reports: make([]wire.OuterReport, n), shown: make([]seals.Exhibit, n)}
	for q := range p.sealed {
		p.sealed[q] = make([][]wire.Sealed, len(g.Plan.Replicas[g.Replica].Stages))
	}
	p.have = plan.Gathered{Generation: g.Plan.Generation, From: from, Replica: g.Replica, Parts: make([]plan.Part, n)}
	return p
}

// put takes in that a stage has all of a replica's messages.
func (p *parts) put(of plan.Replica, at plan.Stage, sealed []wire.Sealed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed[of][at] = append([]wire.Sealed{}, sealed...) // a stage that learns nothing has none, which is not nil
	p.tell()
}

// report takes in how a replica's inner steps went.
func (p *parts) report(of plan.Replica, r wire.OuterReport, seal wire.Seal, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports[of], p.due = r, p.due || due
	p.shown[of] = seals.Exhibit{Report: wire.AppendOuterReport(nil, r), Seal: seal}
	p.tell()
}

// tell says what is here, once what the replica has sent itself is. Callers hold mu.
func (p *parts) tell() {
	have := p.have
	have.Due, have.Parts = p.due, slices.Clone(p.have.Parts)
	for q, stages := range p.sealed {
		whole := !slices.ContainsFunc(stages, func(s []wire.Sealed) bool { return s == nil })
		if steps := p.reports[q].Steps(); steps > 0 && whole && have.Parts[q].Steps == 0 {
			p.shown[q].Layers = slices.Concat(stages...)
			have.Parts[q] = plan.Part{Steps: steps, Sum: p.shown[q].Sum()}
		}
	}
	if have.Parts[have.Replica].Steps == 0 || slices.Equal(have.Parts, p.have.Parts) {
		return
	}
	p.have = have
	p.rounds.Have(have, slices.Clone(p.shown))
}

// said returns how the replicas' inner steps went.
func (p *parts) said() []wire.OuterReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reports)
}
