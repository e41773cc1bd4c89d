package pipeline

import (
	"context"
	"fmt"
	"io"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// State is a stage's state after a step, to be read from the device while training goes
// on: the next update waits until all of it is read.
type State struct {
	Replica plan.Replica
	Stage   plan.Stage
	Step    plan.Step
	Layers  []LayerState
}

// LayerState is one layer: parameters [LayerLen], first moments and second moments
// [TrainedLen], float32 little endian, one after the other. It can be read once, layer
// after layer in any order.
type LayerState struct {
	Layer int
	io.Reader
}

// LayerStateBytes is the size of a layer's state.
func LayerStateBytes(cfg model.Config, layer int) int {
	return 4 * (cfg.LayerLen(layer) + momentVectors*cfg.TrainedLen(layer))
}

// LayerParams is the parameter part of a layer's state.
func LayerParams(cfg model.Config, layer int, state []byte) []byte {
	return state[:4*cfg.LayerLen(layer)]
}

// parts are the vectors of a layer's state in stored order, with gaps where other replicas have
// them; frozen layers have no moments.
func (h *holding) parts(cfg model.Config, layer int) []kernels.View {
	parts := []kernels.View{h.stack.Params(layer)}
	for i := range momentVectors {
		at, kept := 0, h.stack.Moment(layer, i)
		for _, r := range h.stack.Owned(layer) {
			parts = append(parts, gap(r.First-at), kept.Slice(0, r.Len()))
			at, kept = r.End, kept.Slice(r.Len(), kept.Len-r.Len())
		}
		parts = append(parts, gap(cfg.TrainedLen(layer)-at))
	}
	return slices.DeleteFunc(parts, func(v kernels.View) bool { return v.Len == 0 })
}

// save begins to bring a stage's state after a step to the keeper, on a goroutine of its own.
// At most one save of a stage is under way; a second one waits for the first. Only replica 0
// saves: after a step all replicas have the same state, or parts of it, which the others hand in.
func (w *Worker) save(ctx context.Context, h *holding, step plan.Step) error {
	shared := h.layersInParts()
	if h.Replica != 0 && len(shared) == 0 {
		return nil
	}
	if err := h.saving.wait(); err != nil {
		return err
	}
	if h.Replica != 0 {
		unread := newUnread(len(shared))
		var layers [][]sharedMoment
		for _, l := range shared {
			layers = append(layers, w.sharedMoments(h, step, l))
		}
		h.saving.start(func() error { return contribute(ctx, w.cfg.Exchange, layers, unread) }, unread)
		return nil
	}
	unread := newUnread(h.place.Layers.Len())
	s := State{Replica: h.Replica, Stage: h.Stage, Step: step}
	for _, l := range h.layers() {
		s.Layers = append(s.Layers, LayerState{Layer: l, Reader: w.stateReader(ctx, h, step, l, unread)})
	}
	h.saving.start(func() error { return w.cfg.Keeper.Save(ctx, s) }, unread)
	return nil
}

// stateReader reads the state of a layer from the device, and what is not there from the
// replicas that have it.
func (w *Worker) stateReader(ctx context.Context, h *holding, step plan.Step, layer int, unread *unread) io.Reader {
	if h.inParts(layer) && w.cfg.Run.Model.TrainedLen(layer) > 0 {
		params := newViewReader(h.saves, []kernels.View{h.stack.Params(layer)}, func() {})
		return collected(ctx, w.cfg.Exchange, params, w.sharedMoments(h, step, layer), unread)
	}
	return newViewReader(h.saves, h.parts(w.cfg.Run.Model, layer), unread.one)
}

// load fills the state of what is held here: at step 0 the initial model, from the seed or
// as the run names it, and the keeper's copy else.
func (w *Worker) load(ctx context.Context) error {
	for _, h := range w.holdings {
		for _, l := range h.layers() {
			if err := w.loadLayer(ctx, h, l); err != nil {
				return fmt.Errorf("pipeline: load layer %d of step %d: %w", l, w.cfg.Plan.Start, err)
			}
		}
		h.step = w.cfg.Plan.Start
		h.stack.RoundWeights(w.queue, w.opt.rounding(h.step))
	}
	return w.queue.Sync()
}

func (w *Worker) loadLayer(ctx context.Context, h *holding, layer int) error {
	if w.cfg.Plan.Start == 0 {
		return w.loadInitial(ctx, h, layer)
	}
	return w.fetch(ctx, layer, h.parts(w.cfg.Run.Model, layer)...)
}

// fetch has the keeper write what the views hold together.
func (w *Worker) fetch(ctx context.Context, layer int, views ...kernels.View) error {
	dst := &viewWriter{queue: w.queue, views: views}
	if err := w.cfg.Keeper.Load(ctx, layer, dst); err != nil {
		return err
	}
	return dst.complete()
}

// loadInitial leaves the moments as they were allocated: zero. Weights that the run names may
// not reach to the adapters behind them.
func (w *Worker) loadInitial(ctx context.Context, h *holding, layer int) error {
	run := w.cfg.Run
	params, base := h.stack.Params(layer), run.Model.Base().LayerLen(layer)
	if run.Init == nil || params.Len > base && !run.Init.Adapters {
		if err := w.initLayer(h, layer); err != nil {
			return err
		}
	}
	if run.Init == nil {
		return nil
	}
	if !run.Init.Adapters {
		params = params.Slice(0, base)
	}
	return w.fetch(ctx, layer, params)
}

// initLayer makes the initial parameters piece by piece.
func (w *Worker) initLayer(h *holding, layer int) error {
	params := h.stack.Params(layer)
	piece := make([]float32, min(params.Len, transferBytes/4))
	for first := 0; first < params.Len; first += len(piece) {
		part := piece[:min(len(piece), params.Len-first)]
		w.cfg.Run.Model.InitRange(layer, w.cfg.Run.Train.Seed, first, part)
		w.queue.Write(params.Slice(first, len(part)), kernels.Float32Bytes(part))
		if err := w.queue.Sync(); err != nil {
			return err
		}
	}
	return nil
}
