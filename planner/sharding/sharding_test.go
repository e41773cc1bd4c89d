package sharding

import (
	"math/rand/v2"
	"testing"

	"pnode/pipeline/schedule"
)

// one is a stage of 8 GiB of moments, 4 of gradients, 4 of parameters on two replicas.
func one() Stage {
	return Stage{FreedBytes: [Kinds]int64{4 << 30, 2 << 30, 2 << 30}, Groups: 4, Exchange: 10, Window: 50, Site: true}
}

func TestExchangesAreZeROs(t *testing.T) {
	s := one()
	for in, want := range map[Set]struct {
		exchanges int
		cost      schedule.Nanos
	}{
		0:                         {2, 0},
		Of(OptimizerState):        {2, 0},
		Of(Gradients):             {5, 0},
		Of(Parameters):            {9, 20},
		Of(Gradients, Parameters): {12, 50},
		Of(OptimizerState, Gradients, Parameters): {12, 50},
	} {
		if got, cost := s.Exchanges(in), s.Cost(in); got != want.exchanges || cost != want.cost {
			t.Errorf("%v: %d exchanges that cost %d, want %d and %d", in, got, cost, want.exchanges, want.cost)
		}
	}
}

func TestChooseTakesNoMoreThanItNeeds(t *testing.T) {
	slow := one()
	slow.Exchange, slow.Site = 1000, false
	far := one()
	far.Site = false
	for _, c := range []struct {
		name   string
		stage  Stage
		need   int64
		want   Set
		enough bool
	}{
		{"nothing is missing", one(), 0, 0, true},
		{"less than nothing", one(), -1, 0, true},
		{"the optimizer state does", one(), 4 << 30, Of(OptimizerState), true},
		{"gradients are hidden, parameters are not", one(), 5 << 30, Of(OptimizerState, Gradients), true},
		{"all", one(), 7 << 30, Of(OptimizerState, Gradients, Parameters), true},
		{"not even all", one(), 9 << 30, Of(OptimizerState, Gradients, Parameters), false},
		{"no parameters between sites", far, 8 << 30, Of(OptimizerState, Gradients), false},
		{"the optimizer state alone on slow links", slow, 8 << 30, Of(OptimizerState), false},
	} {
		if got, enough := c.stage.Choose(c.need); got != c.want || enough != c.enough {
			t.Errorf("%s: %v in parts, enough %t, want %v, %t", c.name, got, enough, c.want, c.enough)
		}
	}
	if text := Of(OptimizerState, Gradients, Parameters).String(); text != "optimizer state, gradients and parameters" {
		t.Error(text)
	}
}

// TestChooseIsTheLeastCost holds each choice against every set that may be chosen.
func TestChooseIsTheLeastCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		s := Stage{Groups: 1 + rng.IntN(6), Exchange: schedule.Nanos(rng.IntN(20)), Window: schedule.Nanos(rng.IntN(60)), Site: rng.IntN(2) == 0}
		for k := range s.FreedBytes {
			s.FreedBytes[k] = rng.Int64N(10)
		}
		need := rng.Int64N(25) - 2
		best, enough := s.Choose(need)
		if !s.Site && (best.Has(Parameters) || best.Has(Gradients) && s.Cost(best) > 0) {
			t.Fatalf("%+v: %v in parts between sites", s, best)
		}
		for in := Set(0); in < 1<<Kinds; in++ {
			if !s.Site && (in.Has(Parameters) || in.Has(Gradients) && s.Cost(in) > 0) {
				continue
			}
			if s.Freed(in) >= need && (!enough || s.Cost(in) < s.Cost(best)) || !enough && s.Freed(in) > s.Freed(best) {
				t.Fatalf("%+v: %v for %d bytes, %v is better", s, best, need, in)
			}
		}
	}
}
