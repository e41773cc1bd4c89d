package planner

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

const (
	// The best estimates are simulated: at least simulateLeast of them, at most
	// simulateMost, and between as many as do simulateActions in all.
	simulateLeast, simulateMost = 8, 64
	simulateActions             = 1 << 17
	// nearPercent: of plans within that much of the best, the one that moves the least
	// state is taken.
	nearPercent = 2
)

// choose simulates the best candidates and takes one; others are the rest, best first.
func (c *cluster) choose(found []*candidate) (best *candidate, others []*candidate, err error) {
	found = distinct(found)
	slices.SortStableFunc(found, func(a, b *candidate) int { return cmp.Compare(a.estimate, b.estimate) })
	var timed []*candidate
	actions := 0
	for i, k := range found {
		if done := i >= simulateLeast && (actions > simulateActions || i >= simulateMost); done && len(timed) > 0 && !k.follows {
			continue
		}
		actions += 2 * c.in.Run.Train.Micros * k.shape.stages
		if fail := k.simulate(); fail != nil {
			if err == nil {
				err = fmt.Errorf("planner: simulate %v: %w", k.shape, fail)
			}
			continue
		}
		timed = append(timed, k)
	}
	if len(timed) == 0 {
		return nil, nil, err
	}
	slices.SortStableFunc(timed, byStep)
	best = timed[0]
	if c.in.Previous != nil {
		near := best.step() + best.step()*nearPercent/100
		for _, k := range timed {
			if k.step() <= near && k.movedByte < best.movedByte {
				best = k
			}
		}
	}
	others = slices.DeleteFunc(found, func(k *candidate) bool { return k == best })
	slices.SortStableFunc(others, byStep)
	return best, others, nil
}

// byStep prefers less time, then less state to move, then fewer units.
func byStep(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(a.movedByte, b.movedByte), cmp.Compare(a.shape.units(), b.shape.units()))
}

// distinct drops candidates that were found before.
func distinct(found []*candidate) []*candidate {
	var out []*candidate
	seen := map[string]bool{}
	for _, k := range found {
		key := fmt.Sprint(k.shape)
		for _, p := range k.pipes {
			key += fmt.Sprint(p.units, p.ends, p.warmups)
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, k)
		}
	}
	return out
}

// stageOf finds a unit in a candidate.
func (k *candidate) uses(unit int) bool {
	return slices.ContainsFunc(k.pipes, func(p *pipe) bool { return slices.Contains(p.units, unit) })
}

// slower is by how many per mille b exceeds a.
func slower(a, b schedule.Nanos) int64 { return int64(b-a) * 1000 / int64(max(a, 1)) }
