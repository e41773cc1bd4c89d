package simulate

import (
	"errors"
	"fmt"
	"slices"

	"pnode/planner"
	"pnode/planner/holders"
	"pnode/planner/plan"
)

// post describes the work of one machine in a plan, whichever machine of its class does it.
type post struct {
	class int
	// layers are those that it computes; none for one that only keeps copies.
	layers layerSet
	// busyNanos is for how long it computes in a step.
	busyNanos int64
}

// keep is one stage whose checkpoints count, and the posts that keep them; holder is -1 where nobody does.
type keep struct {
	layers       layerSet
	post, holder int
}

// planned is one plan of the planner, for any machines of the right classes.
type planned struct {
	// made counts the machines of each class that the planner had, used those that got a part.
	made, used []int
	posts      []post
	keeps      []keep
	stepNanos  int64
	// facts describe it for policies.
	facts Facts
	// whole reports that every stage has its state as a whole on its device, so that others can go on in its place.
	whole bool
	// text is the planner's first sentence.
	text string
}

// plans makes plans for living machines and keeps them.
type plans struct {
	classes *classes
	input   planner.Input
	make    func(planner.Input) (plan.Plan, plan.Reasons, error)
	known   []*planned
	failed  [][]int // counts of machines that are too few
	// calls counts how often the planner searched.
	calls int
}

// of returns the plan for so many machines of each class; nil where no plan is possible. A plan that was made for more machines
// and needs no more than these is taken as it is: with fewer machines none can be faster, as the planner's tests hold.
func (p *plans) of(counts []int) (*planned, error) {
	var best *planned
	for _, k := range p.known {
		if within(k.used, counts) && within(counts, k.made) && (best == nil || k.stepNanos < best.stepNanos) {
			best = k
		}
	}
	if best != nil || slices.ContainsFunc(p.failed, func(f []int) bool { return within(counts, f) }) {
		return best, nil
	}
	made, err := p.search(counts)
	if errors.Is(err, planner.ErrNoFit) || errors.Is(err, planner.ErrNotEnoughNodes) {
		p.failed = append(p.failed, slices.Clone(counts))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.known = append(p.known, made)
	return made, nil
}

// within reports whether a has no more of any class than b.
func within(a, b []int) bool {
	for i, n := range a {
		if n > b[i] {
			return false
		}
	}
	return true
}

// search has the planner make a plan. Asked replicas and stages yield where there are fewer machines, as in a run.
func (p *plans) search(counts []int) (*planned, error) {
	total := 0
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return nil, planner.ErrNotEnoughNodes
	}
	in := p.input
	train := &in.Run.Train
	if max(1, train.Replicas)*max(1, train.Stages) > total {
		train.Stages = 0
	}
	if train.Replicas > total {
		train.Replicas = 0
	}
	var who map[plan.PeerID]member
	in.Members, who = p.classes.members(counts)
	p.calls++
	made, reasons, err := p.make(in)
	if err != nil {
		return nil, err
	}
	timing, err := planner.Timing(in, made, planner.Measured{})
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	out := &planned{made: slices.Clone(counts), used: make([]int, len(counts)), whole: len(made.Sharded) == 0}
	for _, r := range reasons {
		if r.Kind == plan.ReasonStepTime && out.stepNanos == 0 {
			out.stepNanos, out.text = max(r.Nanos, 1), r.Text
		}
	}
	if out.stepNanos == 0 {
		return nil, fmt.Errorf("simulate: a plan without a step time: %s", reasons.Lines())
	}
	number := map[plan.PeerID]int{}
	for r, pipe := range made.Replicas {
		for s, place := range pipe.Stages {
			i, ok := number[place.Peer]
			if !ok {
				i = len(out.posts)
				number[place.Peer] = i
				out.posts = append(out.posts, post{class: who[place.Peer].class, layers: newLayerSet(len(in.Costs))})
				out.used[who[place.Peer].class]++
			}
			out.posts[i].layers.add(place.Layers)
			t := timing.Replicas[r].Stages[s]
			out.posts[i].busyNanos += int64(t.Micro()+t.Recompute) * int64(pipe.Micros)
			out.facts.PassNanos = max(out.facts.PassNanos, int64(t.Micro()+t.Recompute))
			out.whole = out.whole && !place.Offload
		}
	}
	out.facts.StepNanos, out.facts.ForwardPermille = out.stepNanos, p.forwardPermille()
	for _, post := range out.posts {
		out.facts.LoadNanos = max(out.facts.LoadNanos, timeOf(p.stateBytes(post.layers), p.classes.link(post.class, post.class).BytesPerS))
	}
	p.keeping(out, made, who, number)
	return out, nil
}

// keeping notes who keeps the checkpoints of a plan: replica 0 saves, and the stages' holders have copies.
func (p *plans) keeping(out *planned, made plan.Plan, who map[plan.PeerID]member, number map[plan.PeerID]int) {
	bytes := map[int]int64{}
	for _, place := range made.Replicas[0].Stages {
		k := keep{newLayerSet(len(p.input.Costs)), number[place.Peer], -1}
		k.layers.add(place.Layers)
		state := p.stateBytes(k.layers)
		bytes[k.post] += state
		out.facts.SaveBytes = max(out.facts.SaveBytes, bytes[k.post])
		if place.Holder != "" {
			holder, ok := number[place.Holder]
			if !ok { // it computes nothing
				holder = len(out.posts)
				number[place.Holder] = holder
				out.posts = append(out.posts, post{class: who[place.Holder].class, layers: newLayerSet(len(p.input.Costs))})
			}
			k.holder = holder
			line := p.classes.link(out.posts[k.post].class, out.posts[holder].class)
			out.facts.CopyNanos = max(out.facts.CopyNanos, holders.Copy{StateBytes: state, BytesPerS: line.BytesPerS}.Nanos())
		}
		out.keeps = append(out.keeps, k)
	}
}

// stateBytes returns the size of the state of some layers: parameters and moments in float32.
func (p *plans) stateBytes(layers layerSet) (bytes int64) {
	for l, k := range p.input.Costs {
		if layers.has(l) {
			bytes += k.ParamBytes + plan.MomentBytes(k)
		}
	}
	return bytes
}

// forwardPermille returns which share of a step's work forwards are, in thousandths.
func (p *plans) forwardPermille() int64 {
	var forward, all int64
	for _, k := range p.input.Costs {
		forward += k.ForwardFLOPs / 1e6
		all += (k.ForwardFLOPs + k.InputFLOPs + k.WeightFLOPs) / 1e6
	}
	return forward * 1000 / max(all, 1)
}
