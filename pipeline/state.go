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
func (w *Worker) parts(layer int) []kernels.View {
	parts := []kernels.View{w.stack.Params(layer)}
	if w.cfg.Run.Model.TrainedLen(layer) > 0 {
		parts = append(parts, w.stack.Moment(layer, firstMoment), w.stack.Moment(layer, secondMoment))
	}
	return parts
}

// save hands the stage's state to the keeper on a goroutine of its own. At most one save
// is under way; a second one waits for the first. Only replica 0 saves: after a step all
// replicas hold the same state.
func (w *Worker) save(ctx context.Context, step planner.Step) error {
	if w.cfg.Replica != 0 {
		return nil
	}
	if err := w.saving.wait(); err != nil {
		return err
	}
	s := State{Replica: w.cfg.Replica, Stage: w.cfg.Stage, Step: step}
	unread := newUnread(w.place.Layers.End - w.place.Layers.First)
	for l := w.place.Layers.First; l < w.place.Layers.End; l++ {
		s.Layers = append(s.Layers, LayerState{Layer: l, Reader: newViewReader(w.saves, w.parts(l), unread.one)})
	}
	w.saving.start(func() error { return w.cfg.Keeper.Save(ctx, s) }, unread)
	return nil
}

// load fills the stage's state: at step 0 the initial model, from the seed or as the run
// names it, and the keeper's copy else.
func (w *Worker) load(ctx context.Context) error {
	for l := w.place.Layers.First; l < w.place.Layers.End; l++ {
		if err := w.loadLayer(ctx, l); err != nil {
			return fmt.Errorf("pipeline: load layer %d of step %d: %w", l, w.cfg.Plan.Start, err)
		}
	}
	w.stack.RoundWeights(w.queue)
	return w.queue.Sync()
}

func (w *Worker) loadLayer(ctx context.Context, layer int) error {
	if w.cfg.Plan.Start == 0 {
		return w.loadInitial(ctx, layer)
	}
	return w.fetch(ctx, layer, w.parts(layer)...)
}

// fetch has the keeper write what the views hold together.
func (w *Worker) fetch(ctx context.Context, layer int, views ...kernels.View) error {
	dst := &viewWriter{queue: w.queue, views: views}
	if err := w.cfg.Keeper.Load(ctx, layer, dst); err != nil {
		return err
	}
	return dst.complete()
}

// loadInitial leaves the moments as they were allocated: zero. Weights that the run names do
// not reach to the adapters behind them.
func (w *Worker) loadInitial(ctx context.Context, layer int) error {
	run := w.cfg.Run
	if run.Init == nil || run.Model.LoRA.On() {
		if err := w.initLayer(layer); err != nil {
			return err
		}
	}
	if run.Init == nil {
		return nil
	}
	return w.fetch(ctx, layer, w.stack.Params(layer).Slice(0, run.Model.Base().LayerLen(layer)))
}

// initLayer makes the initial parameters piece by piece.
func (w *Worker) initLayer(layer int) error {
	params := w.stack.Params(layer)
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
