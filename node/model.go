package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/ingest"
	"pnode/node/weights"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// ErrRunning says that a node uses the folder.
var ErrRunning = errors.New("the node runs")

// OpenModel opens the weights in a folder, to read them: one in Hugging Face's layout, an
// imported model, or the newest whole checkpoint of a run whose nodes here are stopped; empty
// is the newest run. The error wraps ErrRunning, config.ErrNoRun (without a
// folder), weights.ErrNoModel or is the reader's.
func OpenModel(ctx context.Context, dir string, log *slog.Logger) (*weights.Model, error) {
	if dir != "" && weights.KindOf(dir) != weights.Nothing {
		return weights.Open(ctx, dir)
	}
	found, err := config.Existing(dir)
	if errors.Is(err, config.ErrNoRun) && dir != "" {
		return nil, fmt.Errorf("%w: %s holds neither a run nor a model: name the folder of a run, of a model in Hugging Face's layout (config.json and model.safetensors), or one that `pnode import` made", weights.ErrNoModel, dir)
	}
	if err != nil {
		return nil, err
	}
	dirs := config.NodeDirs(found)
	if len(dirs) == 0 || config.Belongs(found) {
		dirs = []string{found}
	}
	return openRun(ctx, dirs, log)
}

// openModel is OpenModel for those who tell what they open themselves.
func openModel(ctx context.Context, dir string) (*weights.Model, error) {
	return OpenModel(ctx, dir, slog.New(slog.DiscardHandler))
}

// InitialModel returns the configuration of the model that a run with these settings trains: the
// preset's, or that of the weights that it starts from.
func InitialModel(ctx context.Context, cfg config.Config) (model.Config, error) {
	return ingest.Source{Config: cfg, OpenModel: openModel}.InitialModel(ctx)
}

// openRun opens the stores of a run's nodes together.
func openRun(ctx context.Context, dirs []string, log *slog.Logger) (_ *weights.Model, err error) {
	var shelf weights.Shelf
	defer func() {
		if err != nil {
			err = errors.Join(err, shelf.Close())
		}
	}()
	var spec plan.RunSpec
	for _, dir := range dirs {
		run, err := LoadRun(dir)
		if errors.Is(err, ErrNoRun) { // a node that never got so far
			continue
		}
		if err != nil {
			return nil, err
		}
		store, err := openStopped(ctx, dir, log)
		if err != nil {
			return nil, err
		}
		shelf, spec = append(shelf, store), run
	}
	if len(shelf) == 0 {
		return nil, fmt.Errorf("node: %w in %s: no node there has begun to train; go on with the run with `pnode train --resume`", weights.ErrNoModel, dirs[0])
	}
	return weights.OfRun(ctx, shelf, spec)
}

// openStopped opens the store of a node that must not run.
func openStopped(ctx context.Context, dir string, log *slog.Logger) (*checkpoint.Store, error) {
	if client, err := api.Dial(ctx, dir); err == nil {
		defer client.Close()
		return nil, fmt.Errorf("%w in %s (pid %d) and uses its checkpoints: stop it with Ctrl-C or `pnode leave --dir %s`, then go on with it by `pnode train --resume`",
			ErrRunning, dir, client.PID(), dir)
	}
	store, err := readStore(dir, log)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, fmt.Errorf("%w, or another command works on its checkpoints, in %s: wait until it has ended: %w", ErrRunning, dir, err)
	}
	return store, err
}
