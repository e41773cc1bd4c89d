package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/node/api"
	"pnode/node/ingest"
	"pnode/node/weights"
	"pnode/planner/plan"
)

const errNothingSaved = api.NotReady("nothing has been saved yet: let it train on to its first checkpoint")

// Model names the newest checkpoint of the run, for a local command to read: it stays for a while after each read.
func (c *custody) Model() (api.Model, error) {
	state := c.whole.Consensus.State()
	made := state.Checkpoint
	if state.Run == nil || made.Step == 0 {
		return api.Model{}, errNothingSaved
	}
	c.readers.renew(made.Step, time.Now())
	m := api.Model{Step: made.Step, Generation: made.Generation}
	for _, l := range made.Layers {
		m.Layers = append(m.Layers, plan.LayerInit{SizeBytes: l.SizeBytes, Chunks: l.Chunks})
	}
	return m, nil
}

// Chunk returns a chunk of the run, from other members where it is not here, while the checkpoint of a step is read.
func (c *custody) Chunk(ctx context.Context, step plan.Step, h plan.Hash) ([]byte, error) {
	c.readers.renew(step, time.Now())
	chunk, err := ingest.Chunks{Store: c.whole.Store, Fetch: c.whole.Fetcher.Await}.Chunk(ctx, h)
	if err != nil && c.whole.Consensus.State().Checkpoint.Step != step {
		err = fmt.Errorf("the checkpoint of step %d was replaced while it was read: begin again: %w", step, err)
	}
	return chunk, err
}

// openRunning opens the newest checkpoint of a run whose node runs, through that node.
func openRunning(ctx context.Context, node *api.Client) (*weights.Model, error) {
	spec, err := LoadRun(node.Dir())
	if errors.Is(err, ErrNoRun) {
		return nil, fmt.Errorf("node: %w in %s: its node has not begun to train yet", weights.ErrNoModel, node.Dir())
	}
	if err != nil {
		return nil, err
	}
	newest, err := node.Model(ctx)
	if err != nil {
		return nil, fmt.Errorf("node: %w: the node in %s (pid %d) runs: %w", weights.ErrNoModel, node.Dir(), node.PID(), err)
	}
	if got, want := len(newest.Layers), spec.Model.Layers(); got != want {
		return nil, fmt.Errorf("node: the checkpoint of the node in %s has %d layers, its model %d", node.Dir(), got, want)
	}
	source := runningSource{node, newest.Step}
	return weights.OfCheckpoint(ctx, source, spec, newest.Step, newest.Layers, func() error { node.Close(); return nil })
}

// runningSource reads chunks through a running node. It implements dataset.ChunkSource.
type runningSource struct {
	node *api.Client
	step plan.Step
}

func (s runningSource) Chunk(ctx context.Context, h plan.Hash) ([]byte, error) {
	return s.node.Chunk(ctx, s.step, h)
}
