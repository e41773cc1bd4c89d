package pipeline

import (
	"context"
	"fmt"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner"
)

// State is a consistent copy of a stage after a step, on the host.
type State struct {
	Replica planner.Replica
	Stage   planner.Stage
	Step    planner.Step
	Layers  []LayerState
}

// LayerState is one layer: parameters [LayerLen], first moments and second moments
// [TrainedLen], float32 little endian, one after the other.
type LayerState struct {
	Layer int
	Bytes []byte
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

// save copies the stage's state and hands it to the keeper on a goroutine of its own.
// At most one save is under way; a second one waits for the first. Only replica 0
// saves: after a step all replicas hold the same state.
func (w *Worker) save(ctx context.Context, step planner.Step) error {
	if w.cfg.Replica != 0 {
		return nil
	}
	if err := w.saving.wait(); err != nil {
		return err
	}
	s := State{Replica: w.cfg.Replica, Stage: w.cfg.Stage, Step: step}
	for l := w.place.Layers.First; l < w.place.Layers.End; l++ {
		bytes := make([]byte, LayerStateBytes(w.cfg.Run.Model, l))
		off := 0
		for _, v := range w.parts(l) {
			w.queue.Read(bytes[off:off+4*v.Len], v)
			off += 4 * v.Len
		}
		s.Layers = append(s.Layers, LayerState{Layer: l, Bytes: bytes})
	}
	if err := w.queue.Sync(); err != nil {
		return err
	}
	w.saving.start(func() error { return w.cfg.Keeper.Save(ctx, s) })
	return nil
}

// load fills the stage's state: the initial model at step 0, the keeper's copy else.
func (w *Worker) load(ctx context.Context) error {
	for l := w.place.Layers.First; l < w.place.Layers.End; l++ {
		if err := w.loadLayer(ctx, l); err != nil {
			return fmt.Errorf("pipeline: load layer %d of step %d: %w", l, w.cfg.Plan.Start, err)
		}
	}
	return nil
}

func (w *Worker) loadLayer(ctx context.Context, layer int) error {
	if w.cfg.Plan.Start == 0 { // the moments are zero from allocation
		params := make([]float32, w.cfg.Run.Model.LayerLen(layer))
		w.cfg.Run.Model.InitLayer(layer, w.cfg.Run.Train.Seed, params)
		w.queue.Write(w.stack.Params(layer), kernels.Float32Bytes(params))
		return w.queue.Sync()
	}
	bytes := make([]byte, LayerStateBytes(w.cfg.Run.Model, layer))
	if err := w.cfg.Keeper.Load(ctx, layer, bytes); err != nil {
		return err
	}
	off := 0
	for _, v := range w.parts(layer) {
		w.queue.Write(v, bytes[off:off+4*v.Len])
		off += 4 * v.Len
	}
	return w.queue.Sync()
}

// saving is the one save that may run beside training.
type saving struct{ done chan error }

func (s *saving) start(f func() error) {
	done := make(chan error, 1)
	s.done = done
	go func() { done <- f() }()
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
