package sim

import (
	"errors"
	"math/rand/v2"
	"testing"

	"pnode/pipeline/schedule"
)

func random(rng *rand.Rand) schedule.Costs {
	n := 1 + rng.IntN(6)
	c := schedule.Costs{Stages: make([]schedule.StageTime, n), Boundaries: make([]schedule.Boundary, n-1)}
	for i := range c.Stages {
		c.Stages[i] = schedule.StageTime{Forward: schedule.Nanos(100 + rng.IntN(900)), Input: schedule.Nanos(100 + rng.IntN(900))}
	}
	hop := func() schedule.Hop {
		return schedule.Hop{Transfer: schedule.Nanos(rng.IntN(1500)), Latency: schedule.Nanos(rng.IntN(5000))}
	}
	for i := range c.Boundaries {
		c.Boundaries[i] = schedule.Boundary{Activation: hop(), Gradient: hop()}
	}
	return c
}

// TestMakespanOfLongSteps compares with a simulation to the end, within 1%.
func TestMakespanOfLongSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 60 {
		c := random(rng)
		caps := make([]int, len(c.Stages))
		for r := range caps {
			caps[r] = 1 + rng.IntN(12)
		}
		w, _, err := schedule.MinimalWarmups(c, caps)
		if err != nil {
			t.Fatal(err)
		}
		p := Pipeline{Costs: c, Warmups: w, Micros: 2000 + rng.IntN(500)}
		got, err := p.Makespan()
		if err != nil {
			t.Fatal(err)
		}
		passes, err := p.simulate(p.Micros)
		if err != nil {
			t.Fatal(err)
		}
		want := ended(passes)
		if got < want-want/100 || got > want+want/100 {
			t.Errorf("%+v with %v: %d, simulated to the end %d", c, w, got, want)
		}
		if est := p.Estimate(); est < want-want/50 || est > want+want/50 {
			t.Errorf("%+v with %v: estimate %d, simulated %d", c, w, est, want)
		}
	}
}

func TestRunAddsWhatFollows(t *testing.T) {
	one := func(f schedule.Nanos, micros int) Pipeline {
		return Pipeline{Costs: schedule.Costs{Stages: []schedule.StageTime{{Forward: f, Input: f}}}, Warmups: []int{0}, Micros: micros}
	}
	got, err := Run(Job{Pipelines: []Pipeline{one(5, 3), one(10, 2)}, Reduce: 100, Tied: 200, Commit: 300, Update: 400})
	if err != nil || got.Step != 1040 || got.Slowest != 1 || got.Pipelines[0] != 30 || got.Pipelines[1] != 40 {
		t.Errorf("%+v, %v; want a step of 1040 bound by replica 1", got, err)
	}
	if _, err := Run(Job{Pipelines: []Pipeline{one(-1, 1)}}); !errors.Is(err, schedule.ErrBadCosts) {
		t.Errorf("negative time: %v", err)
	}
	if _, err := Run(Job{Pipelines: []Pipeline{one(1, 0)}}); !errors.Is(err, schedule.ErrBadShape) {
		t.Errorf("no micro-batches: %v", err)
	}
}
