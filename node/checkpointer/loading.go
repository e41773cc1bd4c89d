package checkpointer

import (
	"context"
	"fmt"
	"io"
	"slices"

	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Fetch brings the state of layers here, from several holders at the same time, so that none has much more to send to the plan's
// members than another. It returns when the parameters are here. rest brings the moments, for which Load of the returned saver waits: it
// must be called. What cannot be had that way Load asks everybody for. The chunks stay until a later checkpoint: the one that they are of may not be
// stored here yet.
func (s PlanSaver) Fetch(ctx context.Context, wanted []int) (loads PlanSaver, rest func()) {
	layers, err := s.layersAt(s.plan.Start)
	if err != nil || len(wanted) == 0 {
		return s, func() {}
	}
	for _, st := range s.own(consensus.Checkpoint{Step: s.plan.Start, Layers: layers}) {
		if err := s.Store.Pin(st.request.pin(), st.request.Chunks); err != nil {
			s.Log.Warn("the state at the start of the plan may be swept", "step", s.plan.Start, "cause", err)
		}
	}
	fetch := func(of pipeline.Part) {
		fetching, free := s.untilLost(ctx, wanted...)
		defer free()
		shares := s.shares(layers, wanted, of)
		if of == pipeline.Moments {
			shares = s.addOwn(shares, wanted)
		}
		if err := s.Fetcher.fetchShares(fetching, shares); err != nil && ctx.Err() == nil {
			s.Log.Info("some of the state is looked for elsewhere", "cause", err)
		}
	}
	fetch(pipeline.Parameters)
	done := make(chan struct{})
	s.moments = done
	return s, func() {
		defer close(done)
		fetch(pipeline.Moments)
	}
}

// Load writes a layer's state at the plan's start step to dst. For step 0 these are the weights
// that the run starts from. It fetches chunks that are not here. Those that nobody holds any more it waits for while another member
// computes them again. Of a vector that was not saved it writes nothing.
func (s PlanSaver) Load(ctx context.Context, layer int, of pipeline.Part, dst io.Writer) error {
	var own *plan.Own
	if int(s.replica) < len(s.plan.Replicas) {
		own = s.plan.Replicas[s.replica].Own
	}
	if own != nil && (of == pipeline.Moments || of == pipeline.Missed) {
		return s.loadOwn(ctx, *own, layer, of, dst)
	}
	layers, err := s.layersAt(s.plan.Start)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(layers, func(l consensus.LayerRef) bool { return l.Layer == layer })
	if i < 0 {
		return fmt.Errorf("checkpointer: the checkpoint of step %d has no layer %d", s.plan.Start, layer)
	}
	l := layers[i]
	if run := s.Consensus.State().Run; s.plan.Start > 0 && run != nil && layer < run.Model.Layers() {
		params, trained := int64(4*run.Model.LayerLen(layer)), int64(4*run.Model.TrainedLen(layer))
		switch {
		case own == nil:
			if err := checkSize(*run, s.plan.Start, l); err != nil {
				return err
			}
		case l.SizeBytes != params && l.SizeBytes != params+trained:
			return fmt.Errorf("checkpointer: layer %d of the checkpoint of step %d has size_bytes %d, want %d, and %d more with a momentum of outer steps", layer, s.plan.Start, l.SizeBytes, params, trained)
		}
	}
	cut := cutOf(s.Consensus.State().Run, l.Layer, l.SizeBytes)
	switch {
	case of == pipeline.Parameters:
		return s.loadHead(ctx, l, cut.Head, dst)
	case of == pipeline.OuterMomentum && l.SizeBytes == cut.Head:
		return nil
	}
	if err := s.awaitMoments(ctx); err != nil {
		return err
	}
	if of == pipeline.Moments || of == pipeline.OuterMomentum {
		dst = &without{dst, cut.Head}
	}
	return s.streamRestored(ctx, l, dst)
}

// awaitMoments waits until Fetch has no more of them on their way.
func (s PlanSaver) awaitMoments(ctx context.Context) error {
	if s.moments == nil {
		return nil
	}
	select {
	case <-s.moments:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loadOwn writes a part of what a replica had for itself.
func (s PlanSaver) loadOwn(ctx context.Context, own plan.Own, layer int, of pipeline.Part, dst io.Writer) error {
	layers, err := s.ownAt(own)
	if err != nil {
		return err
	}
	i, run := slices.IndexFunc(layers, func(l consensus.LayerRef) bool { return l.Layer == layer }), s.Consensus.State().Run
	if i < 0 || run == nil || layer >= run.Model.Layers() {
		return fmt.Errorf("checkpointer: the checkpoint of step %d has no layer %d of replica %d", own.Step, layer, own.Replica)
	}
	moments, trained := int64(pipeline.LayerStateBytes(*run, layer)-4*run.Model.LayerLen(layer)), int64(4*run.Model.TrainedLen(layer))
	if err := s.awaitMoments(ctx); err != nil {
		return err
	}
	switch l := layers[i]; {
	case l.SizeBytes != moments && l.SizeBytes != moments+trained:
		return fmt.Errorf("checkpointer: layer %d of replica %d in the checkpoint of step %d has size_bytes %d, want %d, and %d more of what messages lack", layer, own.Replica, own.Step, l.SizeBytes, moments, trained)
	case of == pipeline.Moments:
		return s.loadHead(ctx, l, moments, dst)
	case l.SizeBytes == moments:
		return nil
	default:
		return s.streamRestored(ctx, l, &without{dst, moments})
	}
}

// checkSize refuses a layer's state of another size than the run's optimizer keeps: it would be read as what it is not.
func checkSize(run plan.RunSpec, step plan.Step, l consensus.LayerRef) error {
	want := int64(pipeline.LayerStateBytes(run, l.Layer))
	if l.SizeBytes == want {
		return nil
	}
	return fmt.Errorf("checkpointer: layer %d of the checkpoint of step %d has size_bytes %d, with optimizer %s it is %d: go on with the version of pnode that wrote it, or begin a new run from its weights with --init",
		l.Layer, step, l.SizeBytes, run.Train.Optimizer, want)
}

// loadHead reads no more chunks than have the first bytes, wherever the layer was cut.
func (s PlanSaver) loadHead(ctx context.Context, l consensus.LayerRef, left int64, dst io.Writer) error {
	for i := 0; i < len(l.Chunks) && left > 0; i++ {
		one := l
		one.Chunks = l.Chunks[i : i+1]
		to := &only{dst, left}
		if err := s.streamRestored(ctx, one, to); err != nil {
			return err
		}
		left = to.left
	}
	return nil
}
