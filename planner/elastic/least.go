package elastic

import "pnode/pipeline/schedule"

// Bound is a time that no grouping ends before: the chunks of each worker from any one on, and
// each link, wait for the first micro-batch, have all of them to do, and then the last one still
// has to go back to the first stage.
func (p Interleaving) Bound() schedule.Nanos {
	heads, tails := p.ways()
	last := len(p.Costs.Stages) - 1
	turn := heads[last] + p.Costs.Stages[last].Forward + p.backward(last)
	bound, micros := schedule.Nanos(0), schedule.Nanos(p.Micros)
	for w := range p.Workers {
		var busy, forth, back schedule.Nanos
		top := w
		for s := last + 1 - p.Workers + w; s >= 0; s -= p.Workers {
			busy += micros * (p.Costs.Stages[s].Forward + p.backward(s))
			bound = max(bound, heads[s]+busy+tails[s])
			if s < last {
				forth, back, top = forth+p.Costs.Boundaries[s].Activation.Transfer, back+p.Costs.Boundaries[s].Gradient.Transfer, max(top, s)
			}
		}
		// The first activation on the link behind w is stage w's; after the last one, which at
		// best is the top stage's, comes the way to the end and all the way back.
		bound = max(bound, heads[w]+p.Costs.Stages[w].Forward+micros*forth+
			turn-(heads[top]+p.Costs.Stages[top].Forward+p.Costs.Boundaries[top].Activation.Transfer)+tails[last])
		// The first gradient on the link back to w is at best for the top stage.
		hop := p.Costs.Boundaries[top].Gradient
		bound = max(bound, turn+tails[last]-tails[top]-p.backward(top)-hop.Transfer-hop.Latency+
			micros*back+p.Costs.Boundaries[w].Gradient.Latency+p.backward(w)+tails[w])
	}
	return bound
}

// ways are by stage what a micro-batch that is alone takes from the start to its forward, and
// from the end of its backward to the end of stage 0's.
func (p Interleaving) ways() (heads, tails []schedule.Nanos) {
	heads, tails = make([]schedule.Nanos, len(p.Costs.Stages)), make([]schedule.Nanos, len(p.Costs.Stages))
	for s, b := range p.Costs.Boundaries {
		heads[s+1] = heads[s] + p.Costs.Stages[s].Forward + b.Activation.Transfer + b.Activation.Latency
		tails[s+1] = tails[s] + p.backward(s) + b.Gradient.Transfer + b.Gradient.Latency
	}
	return heads, tails
}

// backward is what a whole one takes on a stage.
func (p Interleaving) backward(stage int) schedule.Nanos {
	return p.Costs.Stages[stage].Input + p.Costs.Stages[stage].Weight
}
