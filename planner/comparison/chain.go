package comparison

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
)

// Chain has the predicted steps of clusters, each of which has the nodes of the one before and more.
type Chain struct {
	Seed uint64 `json:"seed"`
	// Anew has each cluster's plan as if there had been none before. Joined has the plans of a run that the nodes join: each is
	// made with the one before in force.
	Anew   Sizes `json:"anew"`
	Joined Sizes `json:"joined"`
}

// Sizes are clusters of growing size.
type Sizes []Size

// Size is one cluster of a chain.
type Size struct {
	Nodes int `json:"nodes"`
	// Step is the plan's, 0 where the model does not fit. Alone is that of the best single device, 0 where it fits on none.
	Step  schedule.Nanos `json:"step_ns"`
	Alone schedule.Nanos `json:"alone_ns,omitempty"`
	// Plan says what the plan is, for people.
	Plan string `json:"plan,omitempty"`
}

// EveryUpTo is the size up to which every cluster of a chain is planned where no other is said.
const EveryUpTo = 16

// PlanChain plans each cluster of a chain: every size up to one, then each quarter more, and the whole in the end. It calls each, unless
// that is nil, with the chain so far after each size. On an error it returns the sizes before it.
func PlanChain(ctx context.Context, seed uint64, nodes, every int, each func(Chain)) (Chain, error) {
	c, whole := Chain{Seed: seed}, nested(seed, nodes)
	alone := map[string]schedule.Nanos{} // by card
	least := schedule.Nanos(0)
	running := whole
	for n := 1; n <= nodes; n = larger(n, nodes, every) {
		for _, m := range whole.Members[:n] {
			card := m.Profile.Devices[0].Name
			if _, known := alone[card]; known {
				continue
			}
			step, _, err := predicted(ctx, whole, m)
			if err != nil {
				return c, err
			}
			if alone[card] = step; step > 0 && (least == 0 || step < least) {
				least = step
			}
		}
		size := func(in planner.Input) (Size, *plan.Plan, error) {
			p, step, text, err := planned(ctx, in, whole.Members[:n]...)
			return Size{Nodes: n, Step: step, Alone: least, Plan: text}, p, err
		}
		anew, _, err := size(whole)
		if err != nil {
			return c, err
		}
		joined, p, err := size(running)
		if err != nil {
			return c, err
		}
		if p != nil {
			running.Previous, running.Generation = p, p.Generation+1
		}
		if c.Anew, c.Joined = append(c.Anew, anew), append(c.Joined, joined); each != nil {
			each(c)
		}
	}
	return c, nil
}

// larger returns the size of the cluster after one of n nodes.
func larger(n, nodes, every int) int {
	if n == nodes || n < every {
		return n + 1
	}
	return min(n+max(n/4, 1), nodes)
}

// Growth is a step that is longer than with fewer nodes.
type Growth struct {
	Size
	// Fewer is the one of the smaller clusters that has the least step.
	Fewer Size
}

// Over returns by how many parts per million the step is longer; where the model does not fit any more, it counts as twice as long.
func (g Growth) Over() int64 {
	if g.Step == 0 && g.Nodes > 0 {
		return 1e6
	}
	return Over(g.Fewer.Step, g.Step)
}

// Growths returns the sizes whose steps are by more than so many parts per million longer than the least one of the smaller ones, the worst
// first.
func (all Sizes) Growths(most int64) (found []Growth) {
	least := Size{}
	for _, s := range all {
		if g := (Growth{s, least}); least.Step > 0 && g.Over() > most {
			found = append(found, g)
		}
		if s.Step > 0 && (least.Step == 0 || s.Step < least.Step) {
			least = s
		}
	}
	slices.SortStableFunc(found, func(a, b Growth) int { return cmp.Compare(b.Over(), a.Over()) })
	return found
}

// OverAlone returns the size whose step exceeds that of its best single device by most; zero where none does.
func (all Sizes) OverAlone() (worst Size) {
	most := int64(0)
	for _, s := range all {
		if over := Over(s.Alone, s.Step); s.Alone > 0 && over > most {
			worst, most = s, over
		}
	}
	return worst
}

// Over returns by how many parts per million a step is longer than the least one.
func Over(least, step schedule.Nanos) int64 {
	if least <= 0 {
		return 0
	}
	return int64(step-least) * 1e6 / int64(least)
}

// predicted returns the predicted step of the plan of some members, and what the plan is; 0 where the model does not fit on them.
func predicted(ctx context.Context, in planner.Input, members ...planner.Member) (schedule.Nanos, string, error) {
	_, step, text, err := planned(ctx, in, members...)
	return step, text, err
}

// planned returns the plan of some members with its predicted step, and what it is; nil and 0 where the model does not fit on them.
func planned(ctx context.Context, in planner.Input, members ...planner.Member) (*plan.Plan, schedule.Nanos, string, error) {
	in.Members = members
	p, reasons, err := planner.Make(ctx, in)
	if errors.Is(err, planner.ErrNoFit) {
		return nil, 0, "", nil
	}
	if err != nil {
		return nil, 0, "", err
	}
	for _, r := range reasons {
		if r.Kind == plan.ReasonStepTime {
			return &p, schedule.Nanos(r.Nanos), r.Text, nil
		}
	}
	return nil, 0, "", errors.New("comparison: a plan without a predicted step")
}
