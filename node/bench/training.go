package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"

	"pnode/planner/plan"

	"pnode/kernels"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
)

// training is what a worker of a measurement trains.
type training struct {
	StepModel
	device  kernels.Device
	storage model.Storage
	micros  int // of StepModel.Batch sequences each, a step
	lr      float64
	data    pipeline.Data
}

// endless is more steps than anybody asks for.
const endless = 1 << 30

func (t training) run() plan.RunSpec {
	return plan.RunSpec{
		Run: "bench", Model: t.config(),
		Train: plan.TrainSpec{
			Seed: 1, Steps: endless, Micros: t.micros, MicroBatch: t.Batch, LR: t.lr, MinLR: t.lr, WarmupSteps: 1,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, ClipNorm: 1, HeldOutEvery: endless, CheckpointEvery: endless,
			Storage: plan.Storage(t.storage),
		},
	}
}

func (m StepModel) config() model.Config {
	return model.Config{Vocab: m.Vocab, Context: m.Context, Blocks: m.Blocks, Heads: m.Heads, Channels: m.Channels}
}

// stages cuts the model at layers into a pipeline of one peer a stage, all on one device.
func (t training) stages(starts ...int) plan.Plan {
	p := plan.Plan{Run: "bench", Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{{Micros: t.micros}}}
	pipe := &p.Replicas[0]
	for s, first := range starts {
		end := t.config().Layers()
		if s+1 < len(starts) {
			end = starts[s+1]
		}
		pipe.Stages = append(pipe.Stages, plan.Placement{
			Peer: plan.PeerID(fmt.Sprintf("bench-%d", s)), Device: t.device.Name(), Codec: "f32",
			Layers: plan.LayerRange{First: first, End: end},
		})
		pipe.Warmups = append(pipe.Warmups, len(starts)-1-s)
	}
	return p
}

// alone is the config of one worker that has all layers.
func (t training) alone() pipeline.Config {
	plan := t.stages(0)
	return t.worker(plan, plan.Workers()[0])
}

func (t training) worker(plan plan.Plan, seat plan.WorkerID) pipeline.Config {
	return pipeline.Config{
		Seat: seat, Run: t.run(), Plan: plan, Device: t.device, Data: t.data, Exchange: noExchange{}, Keeper: noKeeper{},
		Stop: func() bool { return false }, OnLoaded: func() {}, OnStep: func(pipeline.StepResult) {}, Log: slog.New(slog.DiscardHandler),
	}
}

// randomTokens is data that needs no reading.
type randomTokens struct{ StepModel }

func (d randomTokens) Micro(_ context.Context, step plan.Step, _ plan.Micro, batch int) (tokens, targets []int32, err error) {
	rng := rand.New(rand.NewPCG(uint64(step), 1))
	for range batch {
		next := rng.Int32N(int32(d.Vocab))
		for range d.Context {
			tokens = append(tokens, next)
			next = rng.Int32N(int32(d.Vocab))
			targets = append(targets, next)
		}
	}
	return tokens, targets, nil
}

func (d randomTokens) HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error) {
	return d.Micro(ctx, plan.Step(index), 0, batch)
}

func (randomTokens) HeldOutMicros(int, int) int { return 1 }

// DocumentStarts says that each row is one document.
func (randomTokens) DocumentStarts(tokens []int32) []int32 { return make([]int32, len(tokens)) }

// learnable are tokens that follow each other by a rule, so that losses fall.
type learnable struct{ randomTokens }

func (d learnable) Micro(_ context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	at := func(i int) int32 { return int32((i*i + i/3) % min(61, d.Vocab)) }
	for b := range batch {
		for t := range d.Context {
			i := int(step)*1009 + int(micro)*31 + b*97 + t
			tokens, targets = append(tokens, at(i)), append(targets, at(i+1))
		}
	}
	return tokens, targets, nil
}

// errAlone is what a worker without neighbours and without a store never meets.
var errAlone = errors.New("bench: the worker is alone")

type noKeeper struct{}

func (noKeeper) Save(context.Context, pipeline.State) error { return errAlone }
func (noKeeper) Load(context.Context, int, io.Writer) error { return errAlone }

type noExchange struct{}

func (noExchange) Send(context.Context, plan.PeerID, wire.Frame) error { return errAlone }

func (noExchange) Receive(context.Context, plan.PeerID, wire.Tag) ([]byte, error) {
	return nil, errAlone
}
