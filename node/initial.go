package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/node/weights"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// initPin keeps the weights that a run starts from until its first checkpoint.
	initPin = "init"
	// importEvery is the time between two words about weights that are taken in.
	importEvery = 5 * time.Second
	// filesPin keeps the files of the model that they came from.
	filesPin = "files"
)

// origin is what a run starts from: a preset, or given weights.
type origin struct {
	preset  string
	config  model.Config
	weights *weights.Model // nil for a preset
}

func openOrigin(ctx context.Context, cfg config.Config) (from origin, err error) {
	from.preset = cfg.Preset
	if cfg.Init == "" {
		from.config, err = cfg.Model()
		return from, err
	}
	if from.weights, err = OpenModel(ctx, cfg.Init, slog.New(slog.DiscardHandler)); err != nil {
		return from, fmt.Errorf("init: %w", err)
	}
	if from.weights, err = withAdapters(from.weights, cfg.LoRA); err != nil {
		return from, fmt.Errorf("lora: %w", err)
	}
	if from.config, err = cfg.Fit(from.weights.Config); err != nil {
		return from, errors.Join(err, from.weights.Close())
	}
	return from, nil
}

// withAdapters puts the adapters of a folder beside the weights, to go on training them.
func withAdapters(m *weights.Model, dir string) (*weights.Model, error) {
	if dir == "" {
		return m, nil
	}
	both, err := weights.WithAdapters(m, dir)
	if err != nil {
		return nil, err
	}
	return both.Apart()
}

// Close closes the weights.
func (from origin) Close() error {
	if from.weights == nil {
		return nil
	}
	return from.weights.Close()
}

// modelFor is the model that learns the data: a preset's vocabulary grows to the data's.
func (from origin) modelFor(data plan.DataSpec, out Output) model.Config {
	c := from.config
	if vocab := data.Vocab(); from.weights == nil && vocab > c.Vocab {
		out.Notice(fmt.Sprintf("the data's vocabulary of %d tokens takes the place of the %d of %s", vocab, c.Vocab, from.preset))
		c.Vocab = vocab
	}
	return c
}

// InitialModel is the configuration of the model that a run with these settings trains: the
// preset's, or that of the weights that it starts from.
func InitialModel(ctx context.Context, cfg config.Config) (model.Config, error) {
	from, err := openOrigin(ctx, cfg)
	if err != nil {
		return model.Config{}, err
	}
	return from.config, from.Close()
}

// importWeights brings the weights named by cfg into chunks.
func importWeights(ctx context.Context, store *checkpoint.Store, m *weights.Model, out Output) (*plan.InitSpec, error) {
	writing := store.Begin()
	defer writing.Abort()
	spec, err := m.Store(ctx, writing.PutChunk, importProgress(out, time.Now))
	if err != nil {
		return nil, err
	}
	if err := pinInit(store, spec, true); err != nil {
		return nil, err
	}
	out.Notice(fmt.Sprintf("starting from %s, %.1f M parameters", m.From, float64(m.Config.Params())/1e6))
	for _, warning := range m.Warnings {
		out.Notice("warning: " + warning)
	}
	return &spec, nil
}

// importProgress tells now and then how many of the layers are in chunks.
func importProgress(out Output, now func() time.Time) func(done, total int) {
	last := now()
	return func(done, total int) {
		if t := now(); t.Sub(last) >= importEvery && done < total {
			last = t
			out.Notice(fmt.Sprintf("taking the weights in: layer %d of %d", done, total))
		}
	}
}

// pinInit keeps the files, and the layers as long as no checkpoint replaces them.
func pinInit(store *checkpoint.Store, spec plan.InitSpec, layers bool) error {
	if err := store.Pin(filesPin, plan.InitSpec{Files: spec.Files}.AllChunks()); err != nil || !layers {
		return err
	}
	return store.Pin(initPin, plan.InitSpec{Layers: spec.Layers}.AllChunks())
}

// openInit brings the files of the model that the run started from here, so that every node
// can turn tokens into text and export. Layers are fetched when a stage needs them.
func (n *Node) openInit(ctx context.Context, state consensus.State) error {
	spec := state.Run.Init
	if spec == nil {
		return nil
	}
	err := pinInit(n.store, *spec, state.Checkpoint.Step == 0)
	if err == nil {
		err = n.keeper.Fetcher.Ensure(ctx, plan.InitSpec{Files: spec.Files}.AllChunks(), nil)
	}
	if err != nil {
		return fmt.Errorf("node: the files of the run's model: %w", err)
	}
	return nil
}
