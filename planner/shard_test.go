package planner

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// shardInput is a run of two replicas on as many like devices as they have stages, each with
// so much free memory.
func shardInput(stages int, free int64) Input {
	run := plan.RunSpec{
		Model: model.Config{Vocab: 512, Context: 64, Blocks: 6, Heads: 4, Channels: 64},
		Train: plan.TrainSpec{Micros: 16, SumGroups: 2, MicroBatch: 4, Replicas: 2, Stages: stages},
	}
	in := Input{Run: run, Generation: 1}
	in.Costs = run.Model.Costs(run.Train.MicroBatch, model.StorageF32)
	for i := range 2 * stages {
		in.Members = append(in.Members, Member{Peer: plan.PeerID(rune('a' + i)), Profile: plan.Profile{Devices: []plan.DeviceProfile{
			{Name: "cpu", MatMulFLOPS: 1e10, MemoryBytesPerS: 1e10, MemoryFreeBytes: free},
		}}})
	}
	return in
}

func about(r plan.Reasons, kind plan.ReasonKind) string {
	for _, reason := range r {
		if reason.Kind == kind {
			return reason.Text
		}
	}
	return ""
}

// TestShardingIsChosenByMemory takes memory away. With much of it nothing is sharded; at some
// point it is, for a step that is shorter than what there is without, or because nothing else
// fits; and the plan says so.
func TestShardingIsChosenByMemory(t *testing.T) {
	for _, stages := range []int{1, 2} {
		var fits, helps int
		for free := int64(32 << 20); ; free -= free / int64(casesOf(16, 10)) {
			in := shardInput(stages, free)
			p, reasons, err := Make(t.Context(), in)
			if err != nil {
				if !errors.Is(err, ErrNoFit) {
					t.Fatal(err)
				}
				break
			}
			in.Run.Train.Shard = plan.ShardOff
			_, whole, fail := Make(t.Context(), in)
			text := about(reasons, plan.ReasonSharding)
			switch {
			case p.Sharded == nil && (fail != nil || stepNanos(whole) != stepNanos(reasons)):
				t.Fatalf("%d bytes: not sharded, but off differs: %v", free, fail)
			case p.Sharded != nil && !strings.Contains(text, "in parts, one on each of 2 replicas"), p.Sharded == nil && !strings.Contains(text, "whole on each of 2 replicas"):
				t.Fatalf("%d bytes, sharded %v: %q", free, p.Sharded, text)
			case p.Sharded != nil && fail != nil:
				fits++
			case p.Sharded != nil:
				helps++
				if stepNanos(reasons) >= stepNanos(whole) {
					t.Errorf("%d bytes: sharded for a step of %d, whole takes %d", free, stepNanos(reasons), stepNanos(whole))
				}
			}
		}
		if fits == 0 || helps == 0 {
			t.Errorf("%d stages: sharding made %d plans fit and %d shorter", stages, fits, helps)
		}
	}
}

// TestShardingFollowsTheRule with memory for anything.
func TestShardingFollowsTheRule(t *testing.T) {
	for rule, want := range map[plan.ShardRule]bool{plan.ShardAuto: false, plan.ShardOff: false, plan.ShardOn: true} {
		in := shardInput(2, 1<<30)
		in.Run.Train.Shard = rule
		plan, _, err := Make(t.Context(), in)
		if err != nil || (plan.Sharded != nil) != want {
			t.Fatalf("%v: sharded %v, %v", rule, plan.Sharded, err)
		}
		in.Previous, in.Generation = &plan, 2
		again, _, err := Make(t.Context(), in)
		if err != nil || (again.Sharded != nil) != want {
			t.Errorf("%v: sharded %v the next time, %v", rule, again.Sharded, err)
		}
		if _, err := predicted(in, plan); err != nil {
			t.Error(err)
		}
	}
	alone := shardInput(2, 1<<30)
	alone.Run.Train.Shard, alone.Run.Train.Replicas = plan.ShardOn, 1
	p, reasons, err := Make(t.Context(), alone)
	if err != nil || p.Sharded != nil || about(reasons, plan.ReasonSharding) != "" {
		t.Errorf("one replica: sharded %v, %v, %v", p.Sharded, reasons, err)
	}
	p.Sharded = ranges(0, 1)
	if err := p.Validate(len(alone.Costs), alone.Run.Train.Sums()); !errors.Is(err, plan.ErrBadPlan) {
		t.Errorf("one replica's parts: %v", err)
	}
}

func TestShardRulesAreText(t *testing.T) {
	for _, name := range plan.ShardRules() {
		rule, err := plan.ParseShard(name)
		text, fail := json.Marshal(rule)
		var back plan.ShardRule
		if err != nil || fail != nil || json.Unmarshal(text, &back) != nil || back != rule || string(text) != `"`+name+`"` {
			t.Errorf("%s: %v %s %v %v", name, rule, text, err, fail)
		}
	}
	if err := json.Unmarshal([]byte(`"perhaps"`), new(plan.ShardRule)); !errors.Is(err, plan.ErrBadInput) {
		t.Error(err)
	}
}
