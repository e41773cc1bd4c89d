package bench

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/trace"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// StepModel is a GPT-2 style model with the batch of a training step: Batch sequences of Context
// tokens.
type StepModel struct {
	Name     string `json:"name"`
	Vocab    int    `json:"vocab"`
	Context  int    `json:"context"`
	Blocks   int    `json:"blocks"`
	Heads    int    `json:"heads"`
	Channels int    `json:"channels"`
	Batch    int    `json:"batch"`
	Threads  int    `json:"threads"` // of the processor, 0 for every core
}

// sized returns the model with another context and batch.
func (m StepModel) sized(context, batch int) StepModel {
	m.Context, m.Batch = context, batch
	return m
}

func (m StepModel) config() model.Config {
	return model.Config{Vocab: m.Vocab, Context: m.Context, Blocks: m.Blocks, Heads: m.Heads, Channels: m.Channels}
}

// endless is more steps than anybody asks for.
const endless = 1 << 30

const benchRun = "bench"

// newRun describes a run that never ends, of one micro-batch of one sequence a step.
func newRun(m model.Config) plan.RunSpec {
	return plan.RunSpec{
		Run: benchRun, Model: m,
		Train: plan.TrainSpec{
			Seed: 1, Steps: endless, Micros: 1, SumGroups: 1, MicroBatch: 1, LR: 1e-4, MinLR: 1e-4, WarmupSteps: 1,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, ClipNorm: 1, HeldOutEvery: endless, CheckpointEvery: endless,
		},
	}
}

// unattended completes the config of a worker that nobody stops, saves or reads the log of.
func unattended(c pipeline.Config) pipeline.Config {
	c.Keeper, c.Log = alone{}, slog.New(slog.DiscardHandler)
	c.Stop, c.OnLoaded, c.OnStep = func() bool { return false }, func() {}, func(pipeline.StepResult) {}
	return c
}

// Alone returns the config of a worker that trains all layers of a model on one device, with so many micro-batches a step.
func Alone(device kernels.Device, m model.Config, micros, microBatch int) pipeline.Config {
	run := newRun(m)
	run.Train.Micros, run.Train.MicroBatch = micros, microBatch
	place := plan.Placement{Peer: benchRun, Device: device.Name(), Codec: "f32", Layers: plan.LayerRange{End: m.Layers()}}
	return unattended(pipeline.Config{
		Worker: place.Worker(), Run: run, Device: device, Exchange: alone{},
		Plan: plan.Plan{Run: benchRun, Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{{Micros: micros, Stages: []plan.Placement{place}, Warmups: []int{0}}}},
		Data: randomTokens{vocab: m.Vocab, context: m.Context},
	})
}

// Train lets a worker train some steps, and calls onStep after each.
func Train(ctx context.Context, steps int, c pipeline.Config, onStep func(pipeline.StepResult)) error {
	return train(ctx, steps, []pipeline.Config{c}, nil, func(_ plan.WorkerID, r pipeline.StepResult) { onStep(r) })
}

// traced lets workers train some steps beside each other and returns what each did when.
func traced(ctx context.Context, steps int, configs []pipeline.Config) (t trace.Trace, err error) {
	folder, err := os.MkdirTemp("", "pnode-bench-")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "trace.json")
	recorder, err := trace.Create(path)
	if err != nil {
		return t, err
	}
	err = train(ctx, steps, configs, recorder, func(plan.WorkerID, pipeline.StepResult) {})
	if err = errors.Join(err, recorder.Close()); err != nil {
		return t, err
	}
	file, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer file.Close()
	return trace.Read(file)
}

// train lets workers train some steps beside each other. Their goroutines call onStep after each.
func train(ctx context.Context, steps int, configs []pipeline.Config, recorder *trace.Recorder, onStep func(plan.WorkerID, pipeline.StepResult)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var left atomic.Int64 // steps of workers
	left.Store(int64(steps * len(configs)))
	group, ctx := errgroup.WithContext(ctx)
	var workers []*pipeline.Worker
	for _, c := range configs {
		c.Trace, c.OnStep = recorder, func(r pipeline.StepResult) {
			onStep(c.Worker, r)
			if left.Add(-1) == 0 {
				cancel()
			}
		}
		w, err := pipeline.New(c)
		if err != nil {
			return err
		}
		defer w.Close()
		workers = append(workers, w)
	}
	for _, w := range workers {
		group.Go(func() error { return w.Run(ctx, ctx) })
	}
	if err := group.Wait(); left.Load() > 0 {
		return err
	}
	return nil
}

// randomTokens is data that needs no reading; learnable ones follow each other by a rule, so that
// losses fall. Each row is one document.
type randomTokens struct {
	vocab, context int
	learnable      bool
}

// Micro returns tokens and targets, each [batch,T].
func (d randomTokens) Micro(_ context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	rng := rand.New(rand.NewPCG(uint64(step), 1))
	for b := range batch {
		next := func(int) int32 { return rng.Int32N(int32(d.vocab)) }
		if first := int(step)*1009 + int(micro)*31 + b*97; d.learnable {
			next = func(t int) int32 { i := first + t; return int32((i*i + i/3) % min(61, d.vocab)) }
		}
		row := make([]int32, d.context+1)
		for t := range row {
			row[t] = next(t)
		}
		tokens, targets = append(tokens, row[:d.context]...), append(targets, row[1:]...)
	}
	return tokens, targets, nil
}

// HeldOut returns the tokens of a step in place of held-out ones.
func (d randomTokens) HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error) {
	return d.Micro(ctx, plan.Step(index), 0, batch)
}

// HeldOutMicros returns 1.
func (randomTokens) HeldOutMicros(int, int) int { return 1 }

// DocumentStarts returns the beginning of the row for every token.
func (randomTokens) DocumentStarts(tokens []int32) []int32 { return make([]int32, len(tokens)) }

// alone is the store and the neighbours of a worker that has neither.
type alone struct{}

var errAlone = errors.New("bench: the worker is alone")

func (alone) Save(context.Context, pipeline.State) error { return errAlone }

func (alone) Load(context.Context, int, pipeline.Part, io.Writer) error { return errAlone }

func (alone) Send(context.Context, plan.PeerID, wire.Frame) error { return errAlone }

func (alone) Receive(context.Context, plan.PeerID, wire.Tag) ([]byte, error) { return nil, errAlone }
