package planner

import (
	"pnode/pipeline/schedule"
	"pnode/planner/elastic"
)

// leanTimes is by unit and level the prefix of times under the level.
func (c *cluster) leanTimes(level, unit int) []schedule.Nanos {
	u, l := &c.units[unit], c.ledger(unit)
	if u.lean == nil {
		u.lean = make([][]schedule.Nanos, len(l.Levels()))
	}
	if u.lean[level] == nil {
		before, again := make([]schedule.Nanos, c.layers()+1), schedule.Nanos(0)
		for i, k := range l.Costs() {
			again += u.Speed.Again(k, l.Levels()[level].Recompute())
			before[i+1] = u.Micro[i+1] + again
		}
		u.lean[level] = before
	}
	return u.lean[level]
}

// againAt are a problem's costs with what the pipe's stages compute again of their layers.
func (c *cluster) againAt(p *pipe, problem elastic.Problem) schedule.Costs {
	costs := problem.Costs(p.Codecs)
	for s, st := range problem.Stages {
		first, _ := p.layers(s)
		early, all := c.site.Again(p.units[s], first, p.Recompute[s], p.Ahead[s])
		costs.Stages[s].Input += all
		if st.Given != nil { // it is in Input
			early, _ = sumGiven(st.Given, p.Ahead[s])
		}
		costs.Stages[s].Input -= early
		costs.Stages[s].Recompute = early
	}
	return costs
}

// sumGiven adds up the time of the last so many layers, and of all.
func sumGiven(layers []elastic.Lean, ahead int) (early, all schedule.Nanos) {
	for i, lean := range layers {
		if all += lean.Time; i >= len(layers)-ahead {
			early += lean.Time
		}
	}
	return early, all
}
