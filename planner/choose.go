package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

const (
	// Candidates whose estimate is within estimatePercent of the best simulated step are
	// simulated, at most as many as do simulateActions in all, at least one.
	estimatePercent = 12
	simulateActions = 1 << 19
	// nearPercent: of plans within that much of the best, the one that moves the least
	// state is taken.
	nearPercent = 2
)

// rank simulates the best candidates and sorts: simulated ones first, the least time
// first. What cannot be simulated is dropped; an error means that nothing could be.
func (c *cluster) rank(found []*candidate) ([]*candidate, error) {
	found = distinct(found)
	slices.SortStableFunc(found, func(a, b *candidate) int { return cmp.Compare(a.estimate, b.estimate) })
	var timed, rest []*candidate
	var err error
	best := schedule.Nanos(math.MaxInt64 / 200)
	for _, k := range found {
		worth := k.estimate <= best+best*estimatePercent/100 && c.site.Simulated < simulateActions
		switch {
		case k.simulated:
		case !worth && len(timed) > 0 && !k.kept:
			rest = append(rest, k)
			continue
		default:
			c.site.Simulated += 2 * c.in.Run.Train.Micros * k.shape.stages
			if fail := k.simulate(); fail != nil {
				if err == nil {
					err = fmt.Errorf("planner: simulate %v: %w", k.shape, fail)
				}
				continue
			}
		}
		timed = append(timed, k)
		best = min(best, k.step())
	}
	if len(timed) == 0 {
		return nil, err
	}
	slices.SortStableFunc(timed, byStep)
	return append(timed, rest...), nil
}

// choose takes one of the ranked candidates; others are the rest.
func (c *cluster) choose(ranked []*candidate) (best *candidate, others []*candidate) {
	best = ranked[0]
	if c.in.Previous != nil {
		enough := near(best.step())
		for _, k := range ranked {
			closer := k.movedByte < best.movedByte || (k.kept && k.movedByte == best.movedByte)
			if k.simulated && k.step() <= enough && closer {
				best = k
			}
		}
	}
	others = slices.DeleteFunc(slices.Clone(ranked), func(k *candidate) bool { return k == best })
	slices.SortStableFunc(others, byStep)
	return best, others
}

// near is the longest step that counts as nearly as good.
func near(step schedule.Nanos) schedule.Nanos { return step + step*nearPercent/100 }

// byStep prefers less time, then less state to move, then fewer units.
func byStep(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(a.movedByte, b.movedByte), cmp.Compare(a.shape.units(), b.shape.units()))
}

// distinct drops candidates that were found before.
func distinct(found []*candidate) []*candidate {
	var out []*candidate
	seen := map[string]bool{}
	for _, k := range found {
		key := fmt.Sprint(k.shape, k.sharded, k.away)
		for _, p := range k.pipes {
			key += fmt.Sprint(p.units, p.ends, p.Warmups)
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, k)
		}
	}
	return out
}

// uses tells whether a candidate places a stage on a unit.
func (k *candidate) uses(unit int) bool {
	return slices.ContainsFunc(k.pipes, func(p *pipe) bool { return slices.Contains(p.units, unit) })
}

// slower is by how many per mille b exceeds a.
func slower(a, b schedule.Nanos) int64 { return int64(b-a) * 1000 / int64(max(a, 1)) }
