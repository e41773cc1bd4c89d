package elastic

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// withoutAhead has no memory for anything ahead of a gradient.
func withoutAhead(p Problem) Problem {
	p.Stages = slices.Clone(p.Stages)
	for i := range p.Stages {
		s := &p.Stages[i]
		s.Layers = slices.Clone(s.Layers)
		for l, levels := range s.Layers {
			s.Layers[l] = slices.Clone(levels)
			for level := range levels {
				s.Layers[l][level].AheadBytes = cost.MaxBytes
			}
		}
	}
	return p
}

// inBackward is a decision that recomputes the same inside the backward pass.
func inBackward(d Decision) Decision {
	d.Costs.Stages = slices.Clone(d.Costs.Stages)
	for i := range d.Costs.Stages {
		t := &d.Costs.Stages[i]
		t.Input, t.Recompute = t.Input+t.Recompute, 0
	}
	return d
}

// TestAheadIsNeverWorse: with the choice to recompute ahead of gradients a step is promised to
// be no longer than without, and takes no longer for it.
func TestAheadIsNeverWorse(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	shorter, refused := 0, 0
	for round := range 600 {
		p := random(rng, 2)
		with, err := Choose(p)
		without, fail := Choose(withoutAhead(p))
		var no *NoRoom
		if err != nil && fail == nil || fail != nil && !errors.As(fail, &no) {
			t.Fatalf("round %d: %v with the choice, %v without", round, err, fail)
		}
		if fail != nil { // what is restored ahead may take less than the passes with it inside
			refused++
			continue
		}
		if with.Step(p.Micros) > without.Step(p.Micros) || with.Period > without.Period && with.Step(p.Micros) == without.Step(p.Micros) {
			t.Fatalf("round %d: period %d and step %d, inside the backward %d and %d: %+v", round, with.Period, with.Step(p.Micros), without.Period, without.Step(p.Micros), p)
		}
		if with.Period < without.Period {
			shorter++
		}
		if ahead, inside := simulated(t, with, p.Micros), simulated(t, inBackward(with), p.Micros); ahead.Makespan > inside.Makespan {
			t.Fatalf("round %d: %d ahead of gradients, %d inside the backward: %+v", round, ahead.Makespan, inside.Makespan, with)
		}
	}
	if shorter < 30 || refused > 300 {
		t.Errorf("%d of 600 had a shorter period, %d did not fit", shorter, refused)
	}
}

// TestAheadIsEqualWithoutWaits: where no backward waits for its gradient nothing can be hidden.
func TestAheadIsEqualWithoutWaits(t *testing.T) {
	rng := rand.New(rand.NewPCG(63, 64))
	equal, hidden := 0, 0
	for range 600 {
		p := random(rng, 2)
		if rng.IntN(2) == 0 { // a slow first stage, whose gradients are there before it comes to them
			s := &p.Stages[0]
			s.Time = schedule.StageTime{Forward: 1000, Input: 1000}
			s.RoomBytes, s.Layers, s.Given = 1000, nil, []cost.Recomputation{{Time: schedule.Nanos(rng.IntN(900)), AheadBytes: 1}}
		}
		d, err := Choose(p)
		if err != nil || !slices.ContainsFunc(d.Ahead, func(n int) bool { return n > 0 }) {
			continue
		}
		inside := simulated(t, inBackward(d), p.Micros)
		ahead := simulated(t, d, p.Micros)
		if ahead.Makespan > inside.Makespan {
			t.Fatalf("%d ahead, %d inside", ahead.Makespan, inside.Makespan)
		}
		if waits(inside, d) {
			hidden++
			continue
		}
		if equal++; ahead.Makespan != inside.Makespan {
			t.Fatalf("no backward waits, yet %d ahead and %d inside: %+v", ahead.Makespan, inside.Makespan, d)
		}
	}
	t.Logf("%d without waits, %d with", equal, hidden)
	if equal < 10 || hidden < 30 {
		t.Errorf("%d without waits, %d with", equal, hidden)
	}
}

// waits reports whether a stage that recomputes ahead waits for a gradient.
func waits(line schedule.Timeline, d Decision) bool {
	for w, spans := range line.Workers {
		free := schedule.Nanos(0)
		for _, s := range spans {
			if s.Action.Op == schedule.Backward && s.Start > free && d.Ahead[w] > 0 {
				return true
			}
			free = s.End
		}
	}
	return false
}
