package pipeline

import (
	"context"
	"fmt"
	"io"

	"pnode/kernels"
	"pnode/pipeline/compress"
	"pnode/pipeline/gather"
	"pnode/pipeline/meeting"
	"pnode/planner/plan"
)

// takeOver copies what outer steps have left from the worker of the plan before, for the layers whose moments are taken over too.
func (l *localSteps) takeOver(from *Retained) {
	if from == nil || from.worker.local == nil || !from.worker.local.loaded {
		return
	}
	own := l.worker.plan.Replicas[0].Own
	for _, h := range from.worker.stages {
		was := from.own(h)
		if own != nil && was != nil && !own.Copied && was.Copied { // what its messages lacked is not here
			continue
		}
		for _, layer := range h.layers() {
			state, here := l.gatherer.State(layer)
			if !here || !l.tookOver(layer) {
				continue
			}
			before, _ := from.worker.local.gatherer.State(layer)
			clear(state.Momentum)
			clear(state.Missed)
			copy(state.Momentum, before.Momentum)
			if own != nil && !own.Copied {
				copy(state.Missed, before.Missed)
			}
			l.kept[layer] = true
		}
	}
}

// tookOver reports whether a layer here has its parameters and moments from the worker of the plan before.
func (l *localSteps) tookOver(layer int) bool {
	h, _ := l.trained(layer)
	return h.stack.TookOver(layer)
}

// load fills the state of a layer before the plan's first outer step.
func (l *localSteps) load(ctx context.Context, layer int, s meeting.State) error {
	if err := l.read(layer, s.Reference); err != nil || l.kept[layer] {
		return err
	}
	clear(s.Momentum)
	clear(s.Missed)
	own := l.worker.plan.Replicas[0].Own
	if own == nil {
		return nil
	}
	if err := l.fetch(ctx, layer, OuterMomentum, s.Momentum); err != nil || own.Copied {
		return err
	}
	return l.fetch(ctx, layer, Missed, s.Missed)
}

// fetch has the keeper fill a vector of a layer's state, or leave it as it is.
func (l *localSteps) fetch(ctx context.Context, layer int, of Part, v []float32) error {
	if len(v) == 0 {
		return nil
	}
	dst := &vectorWriter{left: kernels.Float32Bytes(v)}
	if err := l.worker.cfg.Keeper.Load(ctx, layer, of, dst); err != nil {
		return fmt.Errorf("pipeline: load layer %d of step %d: %w", layer, l.worker.plan.Start, err)
	}
	if n := len(dst.left); n != 0 && n != 4*len(v) {
		return fmt.Errorf("pipeline: load layer %d of step %d: %d bytes are missing", layer, l.worker.plan.Start, n)
	}
	return l.worker.checkState(l.worker.plan.Start, l.worker.source(), layer)(kernels.Float32Bytes(v))
}

// vectorWriter writes to memory.
type vectorWriter struct{ left []byte }

func (w *vectorWriter) Write(p []byte) (int, error) {
	if len(p) > len(w.left) {
		return 0, fmt.Errorf("pipeline: %d bytes more than a vector has", len(p)-len(w.left))
	}
	n := copy(w.left, p)
	w.left = w.left[n:]
	return n, nil
}

// LocalStateBytes returns the sizes of a layer's state after an outer step: of what all replicas have in common, and of what each has for itself.
func LocalStateBytes(run plan.RunSpec, codec string, layer int) (common, own int) {
	common, trained := 4*run.Model.LayerLen(layer), 4*run.Model.TrainedLen(layer)
	own = LayerStateBytes(run, layer) - common
	if _, momentum := run.Train.OuterOptimizer(codec); momentum > 0 {
		common += trained
	}
	if codec != compress.F32.String() {
		own += trained
	}
	return common, own
}

// save begins to bring a stage's state after an outer step to the keeper: what the replica has for itself, and what all have. The next update waits
// until the device is read, the next outer step until the gatherer's state is.
func (l *localSteps) save(ctx context.Context, h *StageRuntime, made gather.Outcome) error {
	if err := h.offload.settle(); err != nil {
		return err
	}
	if err := h.saving.wait(); err != nil {
		return err
	}
	w, device, memory := l.worker, newUnread(1), newUnread(1)
	common := State{Replica: w.cfg.Replica, Stage: h.Stage, Step: made.To, Last: made.Last}
	own := common
	own.Own = true
	for _, layer := range h.layers() {
		check, views := w.checkState(made.To, "layer %d's state", layer), h.views(w.spec, layer)
		parts := func(views []kernels.View, vectors ...[]float32) io.Reader {
			device.left.Add(1)
			memory.left.Add(1)
			return io.MultiReader(newViewReader(h.saves, views, check, device.one), &lateReader{make: func() ([]byte, error) {
				var b []byte
				for _, v := range vectors {
					b = append(b, kernels.Float32Bytes(v)...)
				}
				memory.one()
				return b, check(b)
			}})
		}
		state, trained := l.gatherer.State(layer)
		params, vectors := views[:1], [][]float32{state.Momentum}
		if trained && made.Meanwhile > 0 { // the device has what inner steps have made of the reference
			params = []kernels.View{views[0].Slice(0, w.spec.Model.FrozenLen(layer))}
			vectors = [][]float32{state.Reference, state.Momentum}
		}
		common.Layers = append(common.Layers, LayerState{layer, parts(params, vectors...)})
		if trained {
			own.Layers = append(own.Layers, LayerState{layer, parts(views[1:], state.Missed)})
		}
	}
	device.one()
	memory.one()
	h.unread, l.unread[h] = device, memory
	h.saving.start(func() error {
		defer device.end()
		defer memory.end()
		if len(own.Layers) > 0 {
			if err := w.cfg.Keeper.Save(ctx, own); err != nil {
				return err
			}
		}
		return w.cfg.Keeper.Save(ctx, common)
	})
	return nil
}
