package pipeline

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner"
)

// State is a stage's state after a step, to be read from the device while training goes
// on: the next update waits until all of it is read.
type State struct {
	Replica planner.Replica
	Stage   planner.Stage
	Step    planner.Step
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

// parts are the vectors of a layer's state in stored order; frozen layers have no moments.
func (h *holding) parts(cfg model.Config, layer int) []kernels.View {
	parts := []kernels.View{h.stack.Params(layer)}
	if cfg.TrainedLen(layer) > 0 {
		parts = append(parts, h.stack.Moment(layer, firstMoment), h.stack.Moment(layer, secondMoment))
	}
	return parts
}

// save hands a stage's state to the keeper on a goroutine of its own. At most one save of
// a stage is under way; a second one waits for the first. Only replica 0 saves: after a
// step all replicas hold the same state.
func (w *Worker) save(ctx context.Context, h *holding, step planner.Step) error {
	if h.Replica != 0 {
		return nil
	}
	if err := h.saving.wait(); err != nil {
		return err
	}
	s := State{Replica: h.Replica, Stage: h.Stage, Step: step}
	unread := newUnread(h.place.Layers.Len())
	for _, l := range h.layers() {
		s.Layers = append(s.Layers, LayerState{Layer: l, Reader: newViewReader(h.saves, h.parts(w.cfg.Run.Model, l), unread.one)})
	}
	h.saving.start(func() error { return w.cfg.Keeper.Save(ctx, s) }, unread)
	return nil
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
		h.stack.RoundWeights(w.queue)
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

// unread counts the layers that a save has still to read.
type unread struct {
	left atomic.Int64
	none chan struct{} // closed when all are read, or the save has given up
	once sync.Once
}

func newUnread(layers int) *unread {
	u := &unread{none: make(chan struct{})}
	u.left.Store(int64(layers))
	return u
}

// one notes that a layer is read.
func (u *unread) one() {
	if u.left.Add(-1) == 0 {
		u.end()
	}
}

func (u *unread) end() { u.once.Do(func() { close(u.none) }) }

// saving is the one save that may run beside training.
type saving struct {
	done   chan error
	unread *unread
}

func (s *saving) start(f func() error, unread *unread) {
	done := make(chan error, 1)
	s.done, s.unread = done, unread
	go func() {
		defer unread.end()
		done <- f()
	}()
}

// read waits until the save under way, if there is one, reads no parameters any more.
func (s *saving) read(ctx context.Context) error {
	if s.unread == nil {
		return nil
	}
	select {
	case <-s.unread.none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll gives the error of a save that has ended, without waiting.
func (s *saving) poll() error {
	select {
	case err := <-s.done:
		s.done = nil
		return err
	default:
		return nil
	}
}

// wait waits for the save under way and returns its error once.
func (s *saving) wait() error {
	if s.done == nil {
		return nil
	}
	err := <-s.done
	s.done = nil
	return err
}
