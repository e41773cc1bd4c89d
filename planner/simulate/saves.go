package simulate

import (
	"maps"
	"slices"
)

// runOfSteps counts steps that are of equal use.
type runOfSteps struct{ steps, usefulNanos int64 }

// checkpoint is a step whose state is stored, and where.
type checkpoint struct {
	step int64
	// stored lists the slots that have each part; nil is the initial model, or the owner's copy, which nobody loses.
	stored []storedPart
}

type storedPart struct {
	layers layerSet
	slots  []int
}

// lose forgets what a machine has stored.
func (c checkpoint) lose(slot int) {
	for i := range c.stored {
		c.stored[i].slots = slices.DeleteFunc(c.stored[i].slots, func(s int) bool { return s == slot })
	}
}

// has reports whether somebody has stored all of some layers.
func (c checkpoint) has(layers layerSet) bool {
	return !slices.ContainsFunc(c.stored, func(p storedPart) bool { return len(p.slots) == 0 && p.layers.shared(layers) > 0 })
}

// progress holds the steps of a run that are done, and its checkpoints.
type progress struct {
	done int64
	// kept are the steps since the older checkpoint.
	kept          []runOfSteps
	newest, older checkpoint
	redone        int64
	usefulNanos   int64
	redoneNanos   int64
	savedAt       int64 // when the last save ended
	copying       *checkpoint
	copyVersion   int
}

// commit adds a step.
func (p *progress) commit(usefulNanos int64) {
	p.done++
	p.usefulNanos += usefulNanos
	if last := len(p.kept) - 1; last >= 0 && p.kept[last].usefulNanos == usefulNanos {
		p.kept[last].steps++
		return
	}
	p.kept = append(p.kept, runOfSteps{1, usefulNanos})
}

// save makes a checkpoint of the step that the run has come to, or came to, the newest one.
func (p *progress) save(c checkpoint) {
	if c.step <= p.newest.step {
		p.newest.stored = c.stored
		return
	}
	forget := p.newest.step - p.older.step
	p.older, p.newest = checkpoint{step: p.newest.step}, c
	for forget > 0 && len(p.kept) > 0 {
		n := min(forget, p.kept[0].steps)
		p.kept[0].steps -= n
		if forget -= n; p.kept[0].steps == 0 {
			p.kept = p.kept[1:]
		}
	}
}

// back goes back to the newest checkpoint, or to the older one.
func (p *progress) back(older bool) {
	if older {
		p.newest = p.older
	}
	for p.done > p.newest.step && len(p.kept) > 0 {
		last := &p.kept[len(p.kept)-1]
		n := min(last.steps, p.done-p.newest.step)
		p.done, p.redone = p.done-n, p.redone+n
		p.usefulNanos, p.redoneNanos = p.usefulNanos-n*last.usefulNanos, p.redoneNanos+n*last.usefulNanos
		if last.steps -= n; last.steps == 0 {
			p.kept = p.kept[:len(p.kept)-1]
		}
	}
}

// copiesOf returns where the parts of a checkpoint are under a plan, with those of holders or without.
func copiesOf(s *seated, withHolders bool) (parts []storedPart) {
	for _, k := range s.keeps {
		part := storedPart{layers: k.layers}
		if slot := s.slot[k.post]; slot >= 0 {
			part.slots = append(part.slots, slot)
		}
		if k.holder >= 0 && s.slot[k.holder] >= 0 && withHolders {
			part.slots = append(part.slots, s.slot[k.holder])
		}
		parts = append(parts, part)
	}
	return parts
}

// saveBytes returns how much a machine has to save at most until all layers that machines have in memory can be read. At a pause each saves
// all that it has, and the first that is done with a layer counts. Those that go on after a plan has ended share what they have alike: node/leader's rule.
func (p *plans) saveBytes(held map[int]layerSet, shared bool) (most int64) {
	given := map[int]int64{} // by slot
	layers := map[int]int{}
	if !shared {
		for slot, has := range held {
			given[slot] = p.stateBytes(has)
		}
	}
	slots := slices.Sorted(maps.Keys(held))
	for l := 0; l < len(p.input.Costs); {
		var able []int
		for _, slot := range slots {
			if held[slot].has(l) {
				able = append(able, slot)
			}
		}
		if len(able) == 0 || !shared {
			first := int64(0)
			for i, slot := range able {
				if i == 0 || given[slot] < first {
					first = given[slot]
				}
			}
			most = max(most, first)
			l++
			continue
		}
		slices.SortStableFunc(able, func(a, b int) int { return layers[a] - layers[b] })
		end := l + 1
		same := func(slot int) bool { return held[slot].has(end) == slices.Contains(able, slot) }
		for end < len(p.input.Costs) && !slices.ContainsFunc(slots, func(slot int) bool { return !same(slot) }) {
			end++
		}
		for i, slot := range able {
			for n := (end - l + len(able) - i - 1) / (len(able) - i); n > 0; n-- {
				given[slot] += p.stateBytes(oneLayer(len(p.input.Costs), l))
				layers[slot]++
				l++
			}
			most = max(most, given[slot])
		}
	}
	return most
}
