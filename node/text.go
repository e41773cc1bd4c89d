package node

import (
	"context"
	"errors"
	"fmt"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/planner"
	"pnode/swarm/consensus"
)

const (
	// heldOutPermille of the text's end is kept for evaluation.
	heldOutPermille = 50
	// textPin keeps the run's text from being swept.
	textPin = "text"
)

// importText collects the text named by cfg, or the Go toolchain's source, into chunks.
func importText(ctx context.Context, store *checkpoint.Store, cfg config.Config, out Output) (planner.DataSpec, error) {
	paths, what := cfg.Data, "the text"
	if len(paths) == 0 {
		tree, err := dataset.GoSourceTree()
		if err != nil {
			return planner.DataSpec{}, fmt.Errorf("%w: name files or folders of UTF-8 text with --data", err)
		}
		paths, what = []string{tree}, "the Go toolchain's source (no --data given)"
	}
	corpus, err := dataset.Collect(paths, dataset.Options{LimitBytes: int64(cfg.DataLimit)})
	if err != nil {
		return planner.DataSpec{}, err
	}
	writing := store.Begin()
	defer writing.Abort()
	spec, err := corpus.Store(ctx, writing.PutChunk)
	if err != nil {
		return planner.DataSpec{}, err
	}
	if err := store.Pin(textPin, spec.Chunks); err != nil {
		return planner.DataSpec{}, err
	}
	spec.HeldOutPermille = heldOutPermille
	r := corpus.Report
	notice := fmt.Sprintf("training on %s: %d files, %.1f MB", what, r.Files, float64(r.Bytes)/1e6)
	if r.Truncated {
		notice += fmt.Sprintf(", cut at --data-limit %v", cfg.DataLimit)
	}
	if r.Skipped > 0 {
		notice += fmt.Sprintf(", %d files that are not text skipped", r.Skipped)
	}
	out.Notice(notice)
	return spec, nil
}

// checkText refuses a text that is too short for the model before the run exists.
func checkText(store *checkpoint.Store, spec planner.RunSpec) error {
	_, err := dataset.Open(store, spec.Data, window(spec))
	return err
}

func window(spec planner.RunSpec) dataset.Window {
	return dataset.Window{Seed: spec.Train.Seed, Context: spec.Model.Context}
}

// openText fetches what is missing of the run's text from other members and opens it.
// Every node keeps it: then the run does not need the one that brought it.
func (n *Node) openText(ctx context.Context, state consensus.State) (*dataset.Dataset, error) {
	spec := *state.Run
	if err := n.store.Pin(textPin, spec.Data.Chunks); err != nil {
		return nil, fmt.Errorf("node: the run's text: %w", err)
	}
	for attempt := 0; ; attempt++ {
		if err := n.keeper.chunks.ensure(ctx, spec.Data.Chunks, nil); err != nil {
			return nil, fmt.Errorf("node: the run's text: %w", err)
		}
		data, err := dataset.Open(n.store, spec.Data, window(spec))
		if errors.Is(err, checkpoint.ErrCorrupt) && attempt == 0 {
			n.log.Warn("a chunk of the text is damaged, fetching it again", "cause", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("node: the run's text: %w", err)
		}
		return data, nil
	}
}
