package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/ingest"
	"pnode/node/weights"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const errNothingSaved = api.NotReady("nothing has been saved yet: let it train on to its first checkpoint")

// Model names the newest checkpoint of the run, for a local command to read: it stays for a while after each read.
func (c *custody) Model() (api.Model, error) {
	if state, returning := c.known(); returning {
		m, err := storedModel(state, c.whole.Store, c.whole.Self)
		if err == nil {
			c.readers.renew(m.Step, time.Now())
		}
		return m, err
	}
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

// storedModel names the newest checkpoint of which a node's store has all layers, where that comes back to a run and can ask nobody yet;
// state is by its own log.
func storedModel(state consensus.State, store *checkpoint.Store, self plan.PeerID) (api.Model, error) {
	all, err := store.Manifests()
	if err != nil {
		return api.Model{}, err
	}
	for _, kept := range all {
		if !checkpointer.HasWhole(store, kept.Step) {
			continue
		}
		m := api.Model{Step: kept.Step, Generation: kept.Generation}
		for _, l := range kept.Layers {
			m.Layers = append(m.Layers, plan.LayerInit{SizeBytes: l.SizeBytes, Chunks: l.Chunks})
		}
		return m, nil
	}
	if len(state.Checkpoint.Layers) == 0 {
		return api.Model{}, errNothingSaved
	}
	m := api.Model{Step: state.Checkpoint.Step, Generation: state.Checkpoint.Generation}
	var lacks, alone, whose []string
	for _, l := range state.Checkpoint.Layers {
		m.Layers = append(m.Layers, plan.LayerInit{SizeBytes: l.SizeBytes, Chunks: l.Chunks})
		if !slices.ContainsFunc(l.Chunks, func(h plan.Hash) bool { return !store.HasChunk(h) }) {
			continue
		}
		lacks = append(lacks, fmt.Sprint(l.Layer))
		others := slices.DeleteFunc(slices.Clone(l.Holders), func(p plan.PeerID) bool { return p == self })
		whose = append(whose, namesIn(state, others)...)
		if len(others) == 0 {
			alone = append(alone, fmt.Sprint(l.Layer))
		}
	}
	slices.Sort(whose)
	whose = slices.Compact(whose)
	where := "they were on " + strings.Join(whose, " and ") + ". Start these nodes, or read the model there"
	switch {
	case len(lacks) == 0:
		return m, nil
	case len(whose) == 0:
		where = "no other node had them. Bring this folder back from a backup"
	case len(alone) > 0:
		where = fmt.Sprintf("no other node had %s. Bring this folder back from a backup, and start %s, which had the rest", strings.Join(alone, ", "), strings.Join(whose, " and "))
	}
	return api.Model{}, api.NotReady(fmt.Sprintf("of the checkpoint of step %d this folder lacks %s (%s), and nobody that has them answers: %s",
		state.Checkpoint.Step, plan.Count(len(lacks), "layer"), strings.Join(lacks, ", "), where))
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
