package rounds

import (
	"slices"

	"pnode/planner/plan"
)

// Merge returns the outer step that ends the round; not ok while a replica is waited for, and where disputes leave no quorum: then
// the run goes on from its newest checkpoint. A run that pauses or stops is ending: the plan ends with this outer step.
func (r Round) Merge(run plan.RunSpec, p plan.Plan, ending bool) (m plan.Merged, ok bool) {
	if len(r.Missing()) > 0 {
		return m, false
	}
	rest, disputed, _ := r.agree(p, r.Awaited())
	m = plan.Merged{Generation: p.Generation, From: r.From, To: r.From, Parts: make([]plan.Part, len(p.Replicas)), Disputed: disputed, Contradictions: r.Contradictions(p)}
	var taken []plan.MicroRange
	for q, pipe := range p.Replicas {
		part := r.Gathered[rest[0]][q]
		alike := !slices.ContainsFunc(rest, func(by plan.Replica) bool { return r.Gathered[by][q] != part })
		if !alike || part.Steps == 0 || slices.Contains(disputed, plan.Replica(q)) {
			continue
		}
		m.Parts[q], m.To = part, max(m.To, r.From+part.Steps)
		first := pipe.Block(r.End - r.From).First
		taken = append(taken, plan.MicroRange{First: first, End: first + int64(part.Steps)*int64(pipe.Micros)})
	}
	if !quorum(p, m.Counted()) {
		return plan.Merged{}, false
	}
	train := run.Train
	m.Stream = r.Stream.Without(taken).Brief(m.To, train.Micros)
	m.Last = ending || len(r.LeftOut) > 0 || len(m.Contradictions) > 0 || m.To >= train.Steps || r.forestalled(p, m, train.Steps)
	m.Save = m.Last || r.Due || train.CheckpointEvery > 0 && m.To/train.CheckpointEvery > m.From/train.CheckpointEvery
	return m, true
}

// forestalled reports whether replicas have made steps of the next round already, on samples that the outer step does not leave them: a replica that counts
// has made fewer steps than they.
func (r Round) forestalled(p plan.Plan, m plan.Merged, last plan.Step) bool {
	short := func(part plan.Part) bool { return part.Steps < r.End-r.From }
	return m.To == r.End && p.Local.MergedAt(r.End, last) > r.End && slices.ContainsFunc(m.Parts, short)
}

// Contradictions returns what the replicas of a round say against each other: of hasty ones at once, the rest once all that are awaited have said what they have.
func (r Round) Contradictions(p plan.Plan) []plan.Contradiction {
	if len(r.Missing()) > 0 {
		return r.Hasty
	}
	_, _, why := r.agree(p, r.Awaited())
	all := slices.Concat(r.Hasty, why)
	return all[:min(len(all), plan.MaxContradictions)]
}

// agree returns the replicas of some, in order, that have what each other of them says to have sent, and the rest, which are in a dispute, with what brought
// each there. It takes out, one after the other, whoever disagrees with the most micro-batches' worth of others, of equals with the most others, and of these
// the last. Where liars have fewer than half of the micro-batches, one who disagrees with all honest ones goes before any of these.
func (r Round) agree(p plan.Plan, some []plan.Replica) (rest, disputed []plan.Replica, why []plan.Contradiction) {
	against := func(by, of plan.Replica) bool { return r.Gathered[by][of] != r.Gathered[of][of] }
	disagree := func(a, b plan.Replica) bool { return against(a, b) || against(b, a) }
	rest = slices.Clone(some)
	for {
		worst, most, others := -1, 0, 0
		for i, a := range rest {
			micros, with := 0, 0
			for _, b := range rest {
				if disagree(a, b) {
					micros, with = micros+p.Replicas[b].Micros, with+1
				}
			}
			if with > 0 && (micros > most || micros == most && with >= others) {
				worst, most, others = i, micros, with
			}
		}
		if worst < 0 {
			slices.Sort(disputed)
			return rest, disputed, why
		}
		for _, b := range rest {
			for _, c := range []plan.Contradiction{{By: b, Of: rest[worst]}, {By: rest[worst], Of: b}} {
				if against(c.By, c.Of) {
					c.Has, c.Sent = r.Gathered[c.By][c.Of], r.Gathered[c.Of][c.Of]
					why = append(why, c)
				}
			}
		}
		disputed = append(disputed, rest[worst])
		rest = slices.Delete(rest, worst, worst+1)
	}
}
