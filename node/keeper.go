package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// keeper moves layer states between stages, the local store, other nodes and the log.
type keeper struct {
	self   plan.PeerID
	store  *checkpoint.Store
	chunks chunkFetcher
	copier func(ctx context.Context, holder plan.PeerID, r copyRequest) error
	log    replicated
	logger *slog.Logger
}

// replicated is what the keeper needs of the consensus; *consensus.Node is one.
type replicated interface {
	State() consensus.State
	Changed() <-chan struct{}
	Propose(ctx context.Context, e consensus.Entry) error
}

// planKeeper is the keeper as one plan's workers see it: a pipeline.Keeper.
type planKeeper struct {
	*keeper
	plan plan.Plan
}

func (k *keeper) at(plan plan.Plan) planKeeper { return planKeeper{k, plan} }

// Save stores a stage's state here, has the holder fetch a copy and reports the stage to
// the log. Without a copy it is reported all the same, with this node as the only holder:
// a checkpoint on one node is better than none.
func (k planKeeper) Save(ctx context.Context, s pipeline.State) error {
	writing := k.store.Begin()
	defer writing.Abort()
	request := copyRequest{Generation: k.plan.Generation, Step: s.Step, Replica: s.Replica, Stage: s.Stage}
	holders := []plan.PeerID{k.self}
	var layers []consensus.LayerRef
	for _, l := range s.Layers {
		hashes, size, err := writing.WriteLayer(ctx, l.Reader)
		if err != nil {
			return fmt.Errorf("node: save step %d layer %d: %w", s.Step, l.Layer, err)
		}
		request.Chunks = append(request.Chunks, hashes...)
		layers = append(layers, consensus.LayerRef{Layer: l.Layer, SizeBytes: size, Chunks: hashes})
	}
	if err := k.store.Pin(pinName(k.plan.Generation, s.Step, s.Replica, s.Stage), request.Chunks); err != nil {
		return fmt.Errorf("node: save step %d: %w", s.Step, err)
	}
	if holder := k.plan.Replicas[s.Replica].Stages[s.Stage].Holder; holder != "" {
		if err := k.copyTo(ctx, holder, request); err != nil {
			k.logger.Warn("no copy of this stage's state", "step", s.Step, "holder", holder, "cause", err)
		} else {
			holders = append(holders, holder)
		}
	}
	for i := range layers {
		layers[i].Holders = holders
	}
	err := k.log.Propose(ctx, consensus.StageSaved{Step: s.Step, Generation: k.plan.Generation, Layers: layers})
	if err != nil {
		return fmt.Errorf("node: report step %d as saved: %w", s.Step, err)
	}
	return nil
}

// copyTo waits a bounded time for a holder's copy.
func (k *keeper) copyTo(ctx context.Context, holder plan.PeerID, r copyRequest) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	return k.copier(ctx, holder, r)
}

// Load reads a layer's state at the plan's start step, or the weights that the run starts
// from, fetching what is not here.
func (k planKeeper) Load(ctx context.Context, layer int, dst io.Writer) error {
	layers, err := k.layersAt(k.plan.Start)
	if err != nil {
		return err
	}
	for _, l := range layers {
		if l.Layer == layer {
			return k.stream(ctx, l, dst)
		}
	}
	return fmt.Errorf("node: the checkpoint of step %d has no layer %d", k.plan.Start, layer)
}

func (k *keeper) read(ctx context.Context, l consensus.LayerRef, dst []byte) error {
	if l.SizeBytes != int64(len(dst)) {
		return fmt.Errorf("node: layer %d was saved with %d bytes, this model needs %d", l.Layer, l.SizeBytes, len(dst))
	}
	return k.stream(ctx, l, newFixedWriter(dst))
}

func (k *keeper) stream(ctx context.Context, l consensus.LayerRef, dst io.Writer) error {
	if err := k.chunks.ensure(ctx, l.Chunks, l.Holders); err != nil {
		return fmt.Errorf("node: state of layer %d: %w", l.Layer, err)
	}
	return k.store.ReadLayer(ctx, l.Chunks, dst)
}

// layersAt finds the layers at a step; those of step 0 are what the run starts from.
func (k *keeper) layersAt(step plan.Step) ([]consensus.LayerRef, error) {
	if step > 0 {
		return k.checkpointAt(step)
	}
	run := k.log.State().Run
	if run == nil || run.Init == nil {
		return nil, errors.New("node: the run starts from no weights")
	}
	var layers []consensus.LayerRef
	for i, l := range run.Init.Layers {
		layers = append(layers, consensus.LayerRef{Layer: i, SizeBytes: l.SizeBytes, Chunks: l.Chunks})
	}
	return layers, nil
}

// checkpointAt finds the layers saved at a step: in the replicated state, or in a local
// manifest when the state has moved on.
func (k *keeper) checkpointAt(step plan.Step) ([]consensus.LayerRef, error) {
	if c := k.log.State().Checkpoint; c.Step == step {
		return c.Layers, nil
	}
	m, err := k.store.Manifest(step)
	if err != nil {
		return nil, fmt.Errorf("node: checkpoint of step %d: %w", step, err)
	}
	var layers []consensus.LayerRef
	for _, l := range m.Layers {
		layers = append(layers, consensus.LayerRef{Layer: l.Layer, SizeBytes: l.SizeBytes, Chunks: l.Chunks, Holders: l.Holders})
	}
	return layers, nil
}

// committed stores the manifest of a newly committed checkpoint, drops the pins that it
// replaces and the checkpoints beyond the newest keep, and sweeps.
func (k *keeper) committed(run plan.RunID, c consensus.Checkpoint, keep int) error {
	m := checkpoint.Manifest{Run: run, Step: c.Step, Generation: c.Generation}
	for _, l := range c.Layers {
		m.Layers = append(m.Layers, checkpoint.LayerState{Layer: l.Layer, SizeBytes: l.SizeBytes, Chunks: l.Chunks, Holders: l.Holders})
	}
	if err := k.store.Commit(m); err != nil {
		return fmt.Errorf("node: keep the checkpoint of step %d: %w", c.Step, err)
	}
	if err := agesIn(k.store).note(idOf(c), time.Now()); err != nil {
		return err
	}
	pins, err := k.store.Pins()
	if err != nil {
		return err
	}
	for _, name := range pins {
		if step, ok := pinStep(name); ok && step <= c.Step {
			if err := k.store.Unpin(name); err != nil {
				return err
			}
		}
	}
	if err := k.store.Unpin(initPin); err != nil { // from now on a checkpoint is what is gone back to
		return err
	}
	if err := k.store.Retain(keep); err != nil {
		return err
	}
	kept, err := k.store.Manifests()
	if err == nil {
		err = agesIn(k.store).retain(kept)
	}
	if err == nil {
		_, err = k.store.Sweep()
	}
	return err
}

// pinName names the pin of a stage's state, at the worker and at its holder, until the
// checkpoint is committed.
func pinName(g plan.Generation, step plan.Step, r plan.Replica, s plan.Stage) string {
	return fmt.Sprintf("stage/%d/%d/%d/%d", step, g, r, s)
}

func pinStep(name string) (plan.Step, bool) {
	var step, generation uint64
	var replica, stage int
	_, err := fmt.Sscanf(name, "stage/%d/%d/%d/%d", &step, &generation, &replica, &stage)
	return plan.Step(step), err == nil
}

// fixedWriter fills a slice and refuses what does not fit.
type fixedWriter struct{ rest []byte }

func newFixedWriter(dst []byte) *fixedWriter { return &fixedWriter{rest: dst} }

func (w *fixedWriter) Write(p []byte) (int, error) {
	if len(p) > len(w.rest) {
		return 0, fmt.Errorf("node: %d bytes more than the layer holds", len(p)-len(w.rest))
	}
	n := copy(w.rest, p)
	w.rest = w.rest[n:]
	return n, nil
}
