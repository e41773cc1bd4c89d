package bench

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/planner/comparison"
)

// TestPlannerReport compares a few clusters in every row, says what came out, and survives JSON.
func TestPlannerReport(t *testing.T) {
	var told []string
	var shown strings.Builder
	r, err := Planner(t.Context(), PlannerOptions{
		Seed: 7, Chains: 1, Nodes: 3, Small: 3, Medium: 1, Mixed: []int{4}, Cells: 2, Times: []int{3}, Layers: 8, Progress: func(s string) { told = append(told, s) },
		Show: func(s string) { shown.WriteString(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Chains) != 1 || len(r.Small) != 3 || len(r.Medium) != 1 || len(r.Mixed) != comparison.MixedLines() || len(r.Kinds) != 2 || len(r.Times) != 1 || len(told) != 14 || told[2] != "chains (1 of 1, 2 of 3 nodes)" {
		t.Errorf("%+v, told %q", r, told)
	}
	if r.Small[2].Seed != 9 || r.Medium[0].Devices < 6 || r.Times[0].Seconds <= 0 || r.Times[0].AgainSeconds <= 0 || r.Times[0].RepairSeconds <= 0 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"Nested clusters, 1 chain of up to 3 nodes", "2 to 5 devices, seeds 7 to 9", "6 to 8 devices, seeds 7 to 7", "equal split", "2 cells: in 0 another kind alone is shorter", "Time of planning, 8 layers"} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q in\n%s", want, r.Text())
		}
	}
	if shown.String() != r.Text() {
		t.Errorf("shown is\n%s\nof\n%s", shown.String(), r.Text())
	}
	text, err := json.Marshal(r)
	var back PlannerReport
	if err != nil || json.Unmarshal(text, &back) != nil || back.Text() != r.Text() {
		t.Errorf("JSON of %d bytes says something else: %v", len(text), err)
	}
}

// TestPlannerEndsEarly: what is known when somebody ends the comparison is shown, a chain up to its last size, and it says that there was to be more.
func TestPlannerEndsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		o    PlannerOptions
		when string
		want []string
	}{
		"in the second chain": {PlannerOptions{Only: []string{rowChains, rowMixed, rowTime}, Chains: 5, Nodes: 3, Seed: 7}, "chains (2 of 5, 2 of 3 nodes", []string{
			"seed 7: 3 nodes, ", "seed 8: 2 nodes, ", "2 chains of up to 3 nodes, 5 sizes in all", "PARTIAL: chains after 1 of 5; mixed, time not at all\n",
		}},
		"in the only chain":    {PlannerOptions{Only: []string{rowChains}, Chains: 1, Nodes: 3, Seed: 7}, "chains (1 of 1, 2 of 3 nodes", []string{"nodes  step", "\n2 ", "1 chain of up to 2 nodes, 2 sizes", "PARTIAL: chains after 0 of 1\n"}},
		"after a few clusters": {PlannerOptions{Only: []string{rowSmall, rowTime}, Small: 50, Seed: 7}, "small (4 of 50", []string{"2 to 5 devices, seeds 7 to 9", "PARTIAL: small after 3 of 50; time not at all\n"}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var shown strings.Builder
		c.o.Progress = func(s string) {
			if strings.HasPrefix(s, c.when) {
				cancel()
			}
		}
		c.o.Show = func(s string) { shown.WriteString(s) }
		r, err := Planner(ctx, c.o)
		if !errors.Is(err, context.Canceled) || !r.HasRows() || shown.String() != r.Text() {
			t.Errorf("%s: %v, shown\n%s\nof\n%s", name, err, shown.String(), r.Text())
		}
		for _, want := range c.want {
			if !strings.Contains(shown.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, shown.String())
			}
		}
		cancel()
	}
}

// TestWorstIsNamed: the report names the worst cluster with the command that shows it again.
func TestWorstIsNamed(t *testing.T) {
	r := PlannerReport{
		Chains: []comparison.Chain{
			{Seed: 4, Anew: comparison.Sizes{{Nodes: 1, Step: 100}, {Nodes: 2, Step: 90}}, Joined: comparison.Sizes{{Nodes: 1, Step: 100}, {Nodes: 2, Step: 110}}},
			{Seed: 5, Anew: comparison.Sizes{{Nodes: 1, Step: 100, Alone: 100}, {Nodes: 2, Step: 120, Alone: 100}}, Joined: comparison.Sizes{{Nodes: 1, Step: 100}, {Nodes: 2, Step: 100}}},
		},
		Small: []comparison.Gap{{Seed: 4, Step: 100, Least: 100, Proven: true}, {Seed: 5, Step: 102, Least: 100, Best: "a:1", Proven: true}, {Seed: 6}},
	}
	for _, want := range []string{
		"2 chains of up to 2 nodes, 4 sizes in all: in 1 chain a step is longer than on the best single device",
		"Each planned anew: in 1 chain, at 1 size, a step is over 0.1% longer than with fewer nodes",
		"worst: seed 5, 2 nodes 0.12 us, 1 node 0.10 us (+20.0%): pnode bench planner --only chains --chains 1 --seed 5",
		"plan before in force: in 1 chain, at 1 size, a step is over 0.1% longer than with fewer nodes",
		"(+10.0%): pnode bench planner --only chains --chains 1 --seed 4",
		"2 of which the model fits on: the plan is the optimum of all orders, cuts and replicas in 1, within 1% in 1, within 3% in 2; 0 not proven",
		"(+2.0%): pnode bench planner --only small --small 1 --seed 5",
	} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no %q in\n%s", want, r.Text())
		}
	}
}

func TestBadPlannerOptions(t *testing.T) {
	for _, o := range []PlannerOptions{{Only: []string{"all"}}, {Chains: -1}, {Nodes: 1 << 20}, {Mixed: []int{3}}, {Times: []int{1}}, {Small: -1}, {Every: 2000}, {Cells: 61}} {
		if _, err := Planner(t.Context(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "take ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Planner(ended, PlannerOptions{}); !errors.Is(err, context.Canceled) || r.HasRows() {
		t.Errorf("%+v, %v", r, err)
	}
}
