package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
)

// randomLocal returns a run and a local plan for it, of several replicas that are cut differently.
func randomLocal(rng *rand.Rand) (RunSpec, Plan) {
	run := RunSpec{Model: model.Config{Blocks: 1 + rng.IntN(4)}}
	layers, replicas := run.Model.Layers(), 2+rng.IntN(4)
	run.Train = TrainSpec{
		Micros: replicas + rng.IntN(20), Steps: 1000, HeldOutEvery: 10, CheckpointEvery: 7,
		Sync: SyncRule{Local: true},
	}
	run.Train.SumGroups = replicas + rng.IntN(run.Train.Micros-replicas+1)
	sums, group := run.Train.Sums(), 0
	p := Plan{
		Generation: 2, Start: Step(rng.IntN(500)), Schedule: ScheduleName,
		Local: &Local{Rounds{Every: 1 + Step(rng.IntN(60)), Fragments: 1}, "int8"},
	}
	for r := range replicas {
		take := sums.Groups - group
		if left := replicas - r - 1; left > 0 {
			take = 1 + rng.IntN(take-left)
		}
		share := GroupRange{group, group + take}
		pipe := Pipeline{FirstMicro: sums.First(share.First), Micros: sums.MicrosOf(share)}
		group = share.End
		for first := 0; first < layers; {
			end := first + 1 + rng.IntN(layers-first)
			pipe.Stages = append(pipe.Stages, Placement{Peer: PeerID(fmt.Sprintf("r%ds%d", r, len(pipe.Stages))), Device: "cpu", Layers: LayerRange{first, end}})
			first = end
		}
		pipe.Warmups = make([]int, len(pipe.Stages))
		p.Replicas = append(p.Replicas, pipe)
	}
	return run, p
}

// TestEachReplicaAloneIsAPlan of one replica for the run that Alone returns. Together these have each micro-batch of a step, and of a
// round, once.
func TestEachReplicaAloneIsAPlan(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		run, p := randomLocal(rng)
		before := string(p.Encode())
		if err := p.Validate(run.Model.Layers(), run.Train.Sums()); err != nil {
			t.Fatal(err)
		}
		steps := p.Local.RoundEnd(p.Start, run.Train.Steps) - p.Start
		micros, groups, next := 0, 0, int64(0)
		for r := range p.Replicas {
			own, alone := Alone(run, p, Replica(r))
			if err := alone.Validate(run.Model.Layers(), own.Train.Sums()); err != nil {
				t.Fatalf("replica %d of %s alone: %v", r, before, err)
			}
			if alone.Coordinator() != CoordinatorOf(p, Replica(r)) || own.Train.CheckpointEvery != 0 || (own.Train.HeldOutEvery != 0) != (r == 0) {
				t.Fatalf("replica %d alone: coordinator %v, %+v", r, alone.Coordinator(), own.Train)
			}
			micros, groups = micros+own.Train.Micros, groups+own.Train.SumGroups
			block := p.Replicas[r].Block(steps)
			if block.First != next || block.End != next+int64(steps)*int64(own.Train.Micros) {
				t.Fatalf("replica %d of %d steps: %v, want it from %d on", r, steps, block, next)
			}
			next = block.End
		}
		if micros != run.Train.Micros || groups != run.Train.SumGroups || next != int64(steps)*int64(run.Train.Micros) {
			t.Fatalf("%d micro-batches in %d groups and %d places, of %+v and %d steps", micros, groups, next, run.Train.Sums(), steps)
		}
		if after := string(p.Encode()); after != before {
			t.Fatalf("the plan is changed:\n%s\n%s", before, after)
		}
	}
}

func TestLocalPlanRules(t *testing.T) {
	good := func() Plan {
		stage := func(peer PeerID) []Placement {
			return []Placement{{Peer: peer, Device: "cpu", Layers: LayerRange{0, 1}}, {Peer: peer, Device: "gpu", Layers: LayerRange{1, 3}}}
		}
		return Plan{
			Generation: 1, Start: 100, Schedule: ScheduleName, Local: &Local{Rounds{Every: 50, Fragments: 1}, "bf16"},
			Stream: Stream{Given: []MicroRange{{3, 7}}, Fresh: 420},
			Replicas: []Pipeline{
				{Micros: 2, Stages: stage("a"), Warmups: []int{1, 0}, Own: &Own{Replica: 1, Step: 100}},
				{FirstMicro: 2, Micros: 2, Stages: stage("b"), Warmups: []int{1, 0}, Own: &Own{Replica: 0, Step: 100}},
			},
		}
	}
	every := func(p *Plan) { p.Local = nil }
	for _, c := range []struct {
		name   string
		change func(p *Plan)
		says   string // "" where the plan is good
	}{
		{"good", func(*Plan) {}, ""},
		{"states of the checkpoint", func(p *Plan) { p.Replicas[0].Own, p.Replicas[1].Own = nil, nil }, ""},
		{"a copy", func(p *Plan) { p.Replicas[1].Own = &Own{Replica: 1, Step: 100, Copied: true} }, ""},
		{"copies of an older step", func(p *Plan) {
			p.Replicas[0].Own = &Own{Replica: 1, Step: 50, Copied: true}
			p.Replicas[1].Own = p.Replicas[0].Own
		}, ""},
		{"every step, from a replica's state", func(p *Plan) { every(p); p.Replicas[1].Own = p.Replicas[0].Own }, ""},
		{"every step, from two replicas' states", every, "sum gradients in every step"},
		{"one begins with its own", func(p *Plan) { p.Replicas[1].Own = nil }, "but not both"},
		{"the same state twice", func(p *Plan) { p.Replicas[1].Own = p.Replicas[0].Own }, "what its messages lacked"},
		{"a state of later", func(p *Plan) { p.Replicas[0].Own = &Own{Step: 101, Copied: true} }, "in a plan from step 100"},
		{"what messages lacked before", func(p *Plan) { p.Replicas[0].Own = &Own{Replica: 1, Step: 50} }, "in a plan from step 100"},
		{"a state of no replica", func(p *Plan) { p.Replicas[0].Own = &Own{Replica: 64, Step: 100} }, "replica 64"},
		{"a negative replica", func(p *Plan) { p.Replicas[0].Own = &Own{Replica: -1, Step: 100} }, "replica -1"},
		{"one replica", func(p *Plan) { p.Replicas = p.Replicas[:1]; p.Replicas[0].Micros = 4 }, "1 replica, want 2 to 64"},
		{"no codec", func(p *Plan) { p.Local.Codec = "" }, "codec"},
		{"a codec of boundaries only", func(p *Plan) { p.Local.Codec = "fp8" }, "codec"},
		{"no rounds", func(p *Plan) { p.Local.Every = 0 }, "inner steps"},
		{"fragments", func(p *Plan) { p.Local.Fragments = 2 }, "fragments"},
		{"too late", func(p *Plan) { p.Local.Delay = 50 }, "merged 50"},
		{"parts of the state", func(p *Plan) { p.Sharded = LayerRanges{{0, 1}} }, "in common"},
		{"both directions", func(p *Plan) {
			p.Schedule = "chimera"
			p.Replicas[0].Warmups, p.Replicas[1].Warmups = nil, nil
		}, "share devices"},
		{"a schedule of no kind", func(p *Plan) {
			p.Schedule = "some"
			p.Replicas[0].Warmups, p.Replicas[1].Warmups = nil, nil
		}, "some"},
		{"a device of two replicas", func(p *Plan) { p.Replicas[1].Stages[1].Peer = "a" }, "a device of a computes for replicas 0 and 1"},
		{"two devices of a node", func(p *Plan) {
			p.Replicas[1].Stages[1] = Placement{Peer: "a", Device: "gpu2", Layers: LayerRange{1, 3}}
		}, ""},
		{"a bad stream", func(p *Plan) { p.Stream.Fresh = 7 }, "given back"},
		{"post-validation", func(p *Plan) { p.PostValidation = true }, "before their commit"},
	} {
		p := good()
		c.change(&p)
		err := p.Validate(3, Sums{4, 4})
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.Is(err, ErrBadPlan) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.says)
		}
	}
	p := good()
	if !FollowsLocal(p) || p.Substitutes("a") != nil || p.Replayers("a") != nil {
		t.Errorf("local steps: %t, substitutes %v, replayers %v", FollowsLocal(p), p.Substitutes("a"), p.Replayers("a"))
	}
	every(&p)
	if !FollowsLocal(p) || p.Replayers("a") == nil {
		t.Error("a plan with steps in common has nobody to replay")
	}
	p.Stream = Stream{}
	p.Replicas[0].Own = nil
	if !FollowsLocal(p) {
		t.Error("a replica begins with a replica's state, and no plan before it had local steps")
	}
	p.Replicas[1].Own = nil
	if FollowsLocal(p) || p.Stream.Full(p.Start, 4).Fresh != 400 {
		t.Errorf("after nothing but steps in common: %t, from %v on", FollowsLocal(p), p.Stream.Full(p.Start, 4))
	}
}

// TestOuterStepsMayBeLate: not those of rounds that were closed, of the run's last one, or where the next round is no longer than the delay.
func TestOuterStepsMayBeLate(t *testing.T) {
	l := Local{Rounds: Rounds{Every: 50, Fragments: 1, Delay: 5}}
	var got []Step
	for _, end := range []Step{50, 51, 100, 105, 106, 150, 155} {
		got = append(got, l.MergedAt(end, 155))
	}
	if want := []Step{55, 51, 105, 105, 106, 150, 155}; !slices.Equal(got, want) {
		t.Errorf("outer steps after %v, want %v", got, want)
	}
	if at := l.MergedAt(150, 156); at != 155 {
		t.Errorf("an outer step after %d, want 155", at)
	}
	var travel []Step
	for step := Step(41); step <= 155; step++ {
		if l.Travel(step, 40, 155) {
			travel = append(travel, step)
		}
	}
	if want := []Step{51, 52, 53, 54, 55, 101, 102, 103, 104, 105}; !slices.Equal(travel, want) {
		t.Errorf("messages travel after steps %v, want %v", travel, want)
	}
}

// TestRoundsEnd at the same steps, wherever plans start.
func TestRoundsEnd(t *testing.T) {
	l := Local{Rounds: Rounds{Every: 50, Fragments: 1}}
	var got []Step
	for _, from := range []Step{0, 1, 49, 50, 51, 120, 149} {
		got = append(got, l.RoundEnd(from, 130))
	}
	if want := []Step{50, 50, 50, 100, 100, 130, 130}; !slices.Equal(got, want) {
		t.Errorf("rounds end at %v, want %v", got, want)
	}
}
