package planner

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/pipeline/model"
)

// shardInput is a run of two replicas on as many like devices as they have stages, each with
// so much free memory.
func shardInput(stages int, free int64) Input {
	run := RunSpec{
		Model: model.Config{Vocab: 512, Context: 64, Blocks: 6, Heads: 4, Channels: 64},
		Train: TrainSpec{Micros: 16, MicroBatch: 4, Replicas: 2, Stages: stages},
	}
	in := Input{Run: run, Generation: 1}
	in.Costs = run.Model.Costs(run.Train.MicroBatch, model.StorageF32)
	for i := range 2 * stages {
		in.Members = append(in.Members, Member{Peer: PeerID(rune('a' + i)), Profile: Profile{Devices: []DeviceProfile{
			{Name: "cpu", MatMulFLOPS: 1e10, MemoryBytesPerS: 1e10, MemoryFreeBytes: free},
		}}})
	}
	return in
}

func (r Reasons) about(kind ReasonKind) string {
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
		for free := int64(32 << 20); ; free -= free / 16 {
			in := shardInput(stages, free)
			plan, reasons, err := Make(in)
			if err != nil {
				if !errors.Is(err, ErrNoFit) {
					t.Fatal(err)
				}
				break
			}
			in.Run.Train.Shard = ShardOff
			_, whole, fail := Make(in)
			text := reasons.about(Sharding)
			switch {
			case plan.Sharded == nil && (fail != nil || whole.StepNanos() != reasons.StepNanos()):
				t.Fatalf("%d bytes: not sharded, but off differs: %v", free, fail)
			case plan.Sharded != nil && !strings.Contains(text, "in parts, one on each of 2 replicas"), plan.Sharded == nil && !strings.Contains(text, "whole on each of 2 replicas"):
				t.Fatalf("%d bytes, sharded %v: %q", free, plan.Sharded, text)
			case plan.Sharded != nil && fail != nil:
				fits++
			case plan.Sharded != nil:
				helps++
				if reasons.StepNanos() >= whole.StepNanos() {
					t.Errorf("%d bytes: sharded for a step of %d, whole takes %d", free, reasons.StepNanos(), whole.StepNanos())
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
	for rule, want := range map[ShardRule]bool{ShardAuto: false, ShardOff: false, ShardOn: true} {
		in := shardInput(2, 1<<30)
		in.Run.Train.Shard = rule
		plan, _, err := Make(in)
		if err != nil || (plan.Sharded != nil) != want {
			t.Fatalf("%v: sharded %v, %v", rule, plan.Sharded, err)
		}
		in.Previous, in.Generation = &plan, 2
		again, _, err := Make(in)
		if err != nil || (again.Sharded != nil) != want {
			t.Errorf("%v: sharded %v the next time, %v", rule, again.Sharded, err)
		}
		if _, err := Predict(in, plan); err != nil {
			t.Error(err)
		}
	}
	alone := shardInput(2, 1<<30)
	alone.Run.Train.Shard, alone.Run.Train.Replicas = ShardOn, 1
	plan, reasons, err := Make(alone)
	if err != nil || plan.Sharded != nil || reasons.about(Sharding) != "" {
		t.Errorf("one replica: sharded %v, %v, %v", plan.Sharded, reasons, err)
	}
	plan.Sharded = ranges(0, 1)
	if err := plan.Validate(len(alone.Costs), 16); !errors.Is(err, ErrBadPlan) {
		t.Errorf("one replica's parts: %v", err)
	}
}

func TestShardRulesAreText(t *testing.T) {
	for _, name := range ShardRules() {
		rule, err := ParseShard(name)
		text, fail := json.Marshal(rule)
		var back ShardRule
		if err != nil || fail != nil || json.Unmarshal(text, &back) != nil || back != rule || string(text) != `"`+name+`"` {
			t.Errorf("%s: %v %s %v %v", name, rule, text, err, fail)
		}
	}
	if err := json.Unmarshal([]byte(`"perhaps"`), new(ShardRule)); !errors.Is(err, ErrBadInput) {
		t.Error(err)
	}
}
