package hearsay

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"pnode/node/ledger"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

var (
	// errBadWord is wrapped by errors about an answer that is not taken, errBadQuestion by those about a question.
	errBadWord     = errors.New("hearsay: bad answer")
	errBadQuestion = errors.New("hearsay: bad question")
)

// statement holds what one member told, checked by view.check.
type statement struct {
	by   plan.PeerID
	word ledger.Word
}

// only returns the part of the word up to a position.
func (s statement) only(after, last ledger.Position) (w ledger.Word) {
	generations := map[plan.Generation]bool{}
	for _, c := range s.word.Commits {
		if p := c.Position(); after.Compare(p) < 0 && p.Compare(last) <= 0 {
			w.Commits = append(w.Commits, c)
			generations[c.Generation] = true
		}
	}
	for _, p := range s.word.Plans {
		if generations[p.Generation] {
			w.Plans = append(w.Plans, p)
		}
	}
	return w
}

// view holds what this node knows of the run by itself.
type view struct {
	run  plan.RunSpec
	id   plan.RunID
	plan plan.Plan // the newest
	// saved is the step of the newest checkpoint.
	saved  plan.Step
	planOf func(plan.Generation) (plan.Plan, bool) // as the log told it here
}

func viewOf(s consensus.State, planOf func(plan.Generation) (plan.Plan, bool)) view {
	return view{run: *s.Run, id: s.Plan.Run, plan: s.Plan, saved: s.Checkpoint.Step, planOf: planOf}
}

// decode reads what a member answered to a question for the commits after a position. The error wraps errBadWord.
func (v view) decode(by plan.PeerID, after ledger.Position, data []byte) (s statement, err error) {
	s.by = by
	if err := strict.Decode(data, &s.word); err != nil {
		return s, fmt.Errorf("%w: %w", errBadWord, err)
	}
	if err := v.check(s, after); err != nil {
		return s, fmt.Errorf("%w: %w", errBadWord, err)
	}
	return s, nil
}

// check refuses what the member cannot have taken, and plans that are not the log's.
func (v view) check(s statement, after ledger.Position) error {
	if n := len(s.word.Commits); n > ledger.MaxWord || len(s.word.Plans) > n {
		return fmt.Errorf("%d commits and %d plans, at most %d commits with one plan each are accepted", n, len(s.word.Plans), ledger.MaxWord)
	}
	plans := map[plan.Generation]plan.Plan{}
	for _, p := range s.word.Plans {
		if p.Run != v.id || p.Generation > v.plan.Generation {
			return fmt.Errorf("a plan of run %.40q, generation %d: this run is %s, its newest generation %d", p.Run, p.Generation, v.id, v.plan.Generation)
		}
		if err := p.Validate(v.run.Model.Layers(), v.run.Train.Sums()); err != nil {
			return err
		}
		if known, ok := v.planOf(p.Generation); ok && !slices.Equal(known.Encode(), p.Encode()) {
			return fmt.Errorf("another plan of generation %d than the log has", p.Generation)
		}
		plans[p.Generation] = p
	}
	for _, c := range s.word.Commits {
		p, ok := plans[c.Generation]
		switch at := c.Position(); {
		case !ok:
			return fmt.Errorf("no plan of generation %d", c.Generation)
		case !p.Places(s.by):
			return fmt.Errorf("a commit of generation %d, in which it has no part", c.Generation)
		case at.Compare(after) <= 0:
			return fmt.Errorf("step %d of generation %d is not in order", c.Step, c.Generation)
		case c.Step <= p.Start || c.Step > v.run.Train.Steps:
			return fmt.Errorf("step %d of generation %d, which begins after step %d, in a run of %d steps", c.Step, c.Generation, p.Start, v.run.Train.Steps)
		default:
			after = at
		}
	}
	return nil
}

// accept returns up to where what was told can be written down, from a position on.
func (v view) accept(after ledger.Position, told []statement) ledger.Position {
	positions := map[ledger.Position]int{} // how many told of it
	for _, s := range told {
		for _, c := range s.word.Commits {
			positions[c.Position()]++
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(positions), ledger.Position.Compare) {
		switch {
		case p.Compare(after) <= 0:
		case p.Step > after.Step+1: // a gap
			return after
		case positions[p] < 2 && p.Step > v.saved && !v.alone(p.Generation, told):
			return after
		default:
			after = p
		}
	}
	return after
}

// alone reports whether a generation's plan has one member.
func (v view) alone(g plan.Generation, told []statement) bool {
	p, ok := v.planOf(g)
	for _, s := range told {
		for _, other := range s.word.Plans {
			if !ok && other.Generation == g {
				p, ok = other, true
			}
		}
	}
	return ok && len(p.Peers()) == 1
}
