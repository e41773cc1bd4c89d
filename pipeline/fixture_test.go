package pipeline

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"

	"pnode/planner/plan"

	"pnode/pipeline/model"
)

// patterned is a text without a file: windows of a byte sequence with structure.
type patterned struct{ context int }

func (p patterned) window(start, batch int) (tokens, targets []int32, err error) {
	at := func(i int) int32 { return int32((i*i + i/3) % 61) }
	for b := range batch {
		for t := range p.context {
			tokens = append(tokens, at(start+b*97+t))
			targets = append(targets, at(start+b*97+t+1))
		}
	}
	return tokens, targets, nil
}

func (p patterned) Micro(_ context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	return p.window(int(step)*1009+int(micro)*31, batch)
}

func (p patterned) HeldOut(_ context.Context, index, batch int) (tokens, targets []int32, err error) {
	return p.window(1_000_003+index*7, batch)
}

func (p patterned) HeldOutMicros(_, limit int) int { return min(2, limit) }

// DocumentStarts says that a document ends with each token 1.
func (p patterned) DocumentStarts(tokens []int32) []int32 {
	starts := make([]int32, len(tokens))
	for i := range tokens {
		if t := i % p.context; t > 0 {
			starts[i] = starts[i-1]
			if tokens[i-1] == 1 {
				starts[i] = int32(t)
			}
		}
	}
	return starts
}

// memoryKeeper holds the last saved states of all stages.
type memoryKeeper struct {
	mu     sync.Mutex // guards layers
	layers map[plan.Step]map[int][]byte
}

func (k *memoryKeeper) Save(_ context.Context, s State) error {
	states := map[int][]byte{}
	for _, l := range s.Layers {
		state, err := io.ReadAll(l)
		if err != nil {
			return err
		}
		states[l.Layer] = state
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.layers == nil {
		k.layers = map[plan.Step]map[int][]byte{}
	}
	if k.layers[s.Step] == nil {
		k.layers[s.Step] = map[int][]byte{}
	}
	maps.Copy(k.layers[s.Step], states)
	return nil
}

// from is a keeper that loads the states saved at a step.
type from struct {
	*memoryKeeper
	step plan.Step
}

func (f from) Load(_ context.Context, layer int, of Part, dst io.Writer) error {
	f.mu.Lock()
	state, ok := f.layers[f.step][layer]
	if params := len(state) / 3; of == Parameters {
		state = state[:params]
	} else if of == Moments {
		state = state[params:]
	}
	f.mu.Unlock()
	if !ok {
		return fmt.Errorf("layer %d of step %d was not saved", layer, f.step)
	}
	for _, part := range [][]byte{state[:5], state[5:6], state[6:]} { // pieces of any size
		if _, err := dst.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func testRun() plan.RunSpec {
	run := plan.RunSpec{
		Run:   "test",
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 3, Heads: 2, Channels: 32},
		Train: plan.TrainSpec{
			Seed: 7, Steps: 6, Micros: 4, MicroBatch: 2, LR: 3e-3, MinLR: 3e-4, WarmupSteps: 2,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, ClipNorm: 0.5, HeldOutEvery: 2, CheckpointEvery: 3,
		},
	}
	if testing.Short() { // as many checkpoints and evaluations, fewer steps between them
		run.Train.Steps, run.Train.CheckpointEvery = 4, 2
	}
	return run
}

// cut makes a plan: for each replica the layers at which a new stage begins.
func cut(run plan.RunSpec, scheduleName string, bounds ...[]int) plan.Plan {
	p := plan.Plan{Run: run.Run, Generation: 1, Schedule: scheduleName}
	for r, starts := range bounds {
		share := run.Train.Micros / len(bounds)
		pipe := plan.Pipeline{FirstMicro: plan.Micro(r * share), Micros: share}
		for s, first := range starts {
			end := run.Model.Layers()
			if s+1 < len(starts) {
				end = starts[s+1]
			}
			pipe.Stages = append(pipe.Stages, plan.Placement{
				Peer: plan.PeerID(fmt.Sprintf("peer-%d-%d", r, s)), Device: "cpu", Codec: "f32",
				Layers: plan.LayerRange{First: first, End: end},
			})
			pipe.Warmups = append(pipe.Warmups, len(starts)-1-s)
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return p
}
