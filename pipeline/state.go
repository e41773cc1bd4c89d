package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"pnode/kernels"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// State is a stage's state after a step, to be read from the device while training goes on: the next
// update waits until all of it is read. What is not finite is not read: the error is this worker's fault,
// and the state must not be reported as saved.
type State struct {
	Replica plan.Replica
	Stage   plan.Stage
	Step    plan.Step
	// Last marks the plan's last step: replicas other than 0 offer their layers too then.
	Last bool
	// Own says that the layers are what the replica has for itself, see LayerState.
	Own    bool
	Layers []LayerState
}

// LayerState is one layer: parameters [LayerLen], first moments [TrainedLen], and second moments of those elements that have one,
// float32 little endian, one after the other. It can be read once, layer after layer in any order.
//
// After an outer step it is what all replicas have in common: parameters, and the momentum of outer steps [TrainedLen] where they have one. What a
// replica has for itself are the moments, and what its messages lacked [TrainedLen] where their codec is not exact; nothing where nothing is trained.
type LayerState struct {
	Layer int
	io.Reader
}

// LayerStateBytes returns the size of a layer's state.
func LayerStateBytes(run plan.RunSpec, layer int) int {
	elements := run.Model.LayerLen(layer)
	for i := range momentVectors {
		elements += run.StateLayout().Len(layer, i)
	}
	return 4 * elements
}

// LayerParams returns the parameter part of a layer's state.
func LayerParams(cfg model.Config, layer int, state []byte) []byte {
	return state[:4*cfg.LayerLen(layer)]
}

// views returns the vectors of a layer's state in stored order, with gaps where other replicas have
// them; frozen layers have no moments.
func (h *StageRuntime) views(run plan.RunSpec, layer int) []kernels.View {
	gap := func(n int) kernels.View { return kernels.View{Len: n} }
	views := []kernels.View{h.stack.Params(layer)}
	for i := range momentVectors {
		at, kept := 0, h.stack.Moment(layer, i)
		for _, r := range run.StateLayout().Placed(layer, i, h.share(layer)) {
			views = append(views, gap(r.First-at), kept.Slice(0, r.Len()))
			at, kept = r.End, kept.Slice(r.Len(), kept.Len-r.Len())
		}
		views = append(views, gap(run.StateLayout().Len(layer, i)-at))
	}
	return slices.DeleteFunc(views, func(v kernels.View) bool { return v.Len == 0 })
}

// save begins to bring a stage's state after a step to the keeper, on a goroutine of its own. At most
// one save of a stage is in progress; a second one waits for the first. Only replica 0 saves: after a
// step all replicas have the same state, or parts of it, which the others hand in. After the plan's last
// step the others offer the layers that they have whole, too: the next plan loads them where they are.
func (w *Worker) save(ctx context.Context, h *StageRuntime, step plan.Step, last bool) error {
	if err := h.offload.settle(); err != nil {
		return err
	}
	layers := h.layers()
	if h.Replica != 0 && !last {
		layers = h.layersInParts()
	}
	if len(layers) == 0 {
		return nil
	}
	if err := h.saving.wait(); err != nil {
		return err
	}
	unread := newUnread(len(layers))
	s := State{Replica: w.cfg.Replica + h.Replica, Stage: h.Stage, Step: step, Last: last}
	var moments [][]sharedMoment // by layer, of those that this replica hands in parts of
	for _, l := range layers {
		shared, check := w.sharedMoments(h, step, l), w.checkState(step, "layer %d's state", l)
		if h.Replica != 0 && len(shared) > 0 {
			moments = append(moments, shared)
			continue
		}
		var reader io.Reader
		if len(shared) > 0 {
			reader = wholeState(ctx, w.cfg.Exchange, newViewReader(h.saves, []kernels.View{h.stack.Params(l)}, check, func() {}), shared, unread)
		} else {
			reader = newViewReader(h.saves, h.views(w.spec, l), check, unread.one)
		}
		s.Layers = append(s.Layers, LayerState{Layer: l, Reader: reader})
	}
	h.unread = unread
	h.saving.start(func() error {
		defer unread.end()
		if err := contribute(ctx, w.cfg.Exchange, moments, unread); err != nil || len(s.Layers) == 0 {
			return err
		}
		return w.cfg.Keeper.Save(ctx, s)
	})
	return nil
}

// sharedMoment is this replica's part of a layer's moment, and how it comes together.
type sharedMoment struct {
	state collective.State
	own   kernels.View
	queue kernels.Queue
	whole int // elements of all parts
	check func(elements []byte) error
}

// sharedMoments returns the moments of a layer that replicas have in parts; a frozen one has none.
func (w *Worker) sharedMoments(h *StageRuntime, step plan.Step, layer int) (moments []sharedMoment) {
	if w.spec.Model.TrainedLen(layer) == 0 || !h.inParts(layer) {
		return nil
	}
	for i := range momentVectors {
		whole := w.spec.StateLayout().Len(layer, i)
		if whole == 0 { // of adapters that have matrices alone
			continue
		}
		group := w.holders(h, step, layer)
		for r := range group.Parts {
			group.Parts[r] = w.spec.StateLayout().Placed(layer, i, w.plan.Share(plan.Replica(r), layer))
		}
		moments = append(moments, sharedMoment{
			state: collective.State{Group: group, Number: i},
			own:   h.stack.Moment(layer, i), queue: h.saves, whole: whole,
			check: w.checkState(step, "layer %d's state", layer),
		})
	}
	return moments
}

// read copies the own part to the host.
func (m sharedMoment) read() ([]float32, error) {
	own := make([]float32, m.own.Len)
	host.Read(m.queue, kernels.Float32Bytes(own), m.own)
	if err := m.queue.Sync(); err != nil {
		return nil, err
	}
	return own, m.check(kernels.Float32Bytes(own))
}

// contribute hands in this replica's part of layers' moments to the replica that saves.
func contribute(ctx context.Context, ex collective.Exchange, layers [][]sharedMoment, unread *unread) error {
	for _, moments := range layers {
		parts := make([][]float32, len(moments))
		for i, m := range moments {
			var err error
			if parts[i], err = m.read(); err != nil {
				return err
			}
		}
		unread.one()
		for i, m := range moments {
			if err := collective.Contribute(ctx, ex, m.state, parts[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// wholeState reads a layer's parameters from the device and its moments from all replicas.
func wholeState(ctx context.Context, ex collective.Exchange, params io.Reader, moments []sharedMoment, unread *unread) io.Reader {
	parts := []io.Reader{params}
	for i, m := range moments {
		parts = append(parts, &lateReader{make: func() ([]byte, error) {
			own, err := m.read()
			if err != nil {
				return nil, err
			}
			if i == len(moments)-1 {
				unread.one()
			}
			whole, err := collective.Collect(ctx, ex, m.state, m.whole, own)
			return kernels.Float32Bytes(whole), err
		}})
	}
	return io.MultiReader(parts...)
}

// lateReader reads bytes that are made when they are first asked for.
type lateReader struct {
	make func() ([]byte, error)
	made *bytes.Reader
}

func (r *lateReader) Read(p []byte) (int, error) {
	if r.made == nil {
		b, err := r.make()
		if err != nil {
			return 0, err
		}
		r.made = bytes.NewReader(b)
	}
	return r.made.Read(p)
}

// checkState returns what finds elements of a layer's state that are not finite. The text names them, with
// the layer's number.
func (p *program) checkState(step plan.Step, text string, layer int) func([]byte) error {
	return func(elements []byte) error {
		err := wire.CheckElements(elements, float32(math.Inf(1)))
		if err == nil {
			return nil
		}
		return faulty(plan.BadParameters, p.worker.Peer, step, text+": %v", layer, err)
	}
}

// source returns where the state at the plan's start comes from, with room for a layer's number.
func (p *program) source() string {
	if p.plan.Start == 0 {
		return "the weights that the run starts from, layer %d"
	}
	return fmt.Sprintf("the checkpoint of step %d, layer %%d", p.plan.Start)
}

// loadAll loads the state of the plan's start. Where moments are late it returns with the parameters, and the moments follow.
func (w *Worker) loadAll(ctx context.Context) error {
	w.still.Lock()
	defer w.still.Unlock()
	late := w.late()
	if late {
		if err := w.load(ctx, Parameters); err != nil {
			return err
		}
		w.moments.start(func() error {
			if err := w.load(ctx, Moments); err != nil {
				return err
			}
			w.still.Lock()
			w.loaded = true
			w.still.Unlock()
			w.cfg.OnLoaded()
			return nil
		})
		return nil
	}
	if err := w.load(ctx, Whole); err != nil {
		return err
	}
	w.loaded = true
	return nil
}

// late reports whether a step begins before the moments are here.
func (w *Worker) late() bool {
	return w.cfg.Late && 0 < w.plan.Start && w.plan.Start < w.spec.Train.Steps &&
		!slices.ContainsFunc(w.stages, func(h *StageRuntime) bool { return h.offload != nil })
}

// load fills a part of the state of the stages here, but for layers whose state was taken over: at step 0 the initial model, from the
// seed or as the run names it, and the keeper's copy else.
func (w *Worker) load(ctx context.Context, of Part) error {
	for _, h := range w.stages {
		for _, l := range h.layers() {
			var err error
			switch views := h.views(w.spec, l); {
			case h.stack.TookOver(l):
			case w.plan.Start == 0:
				err = w.loadInitial(ctx, h, l)
			case of == Parameters:
				err = w.fetch(ctx, w.queue, l, of, views[:1])
			case of == Moments:
				err = w.fetch(ctx, h.saves, l, of, views[1:])
			case w.plan.Replicas[h.Replica].Own != nil: // parameters and moments are saved apart
				if err = w.fetch(ctx, w.queue, l, Parameters, views[:1]); err == nil {
					err = w.fetch(ctx, w.queue, l, Moments, views[1:])
				}
			default:
				err = w.fetch(ctx, w.queue, l, of, views)
			}
			if err != nil {
				return fmt.Errorf("pipeline: load layer %d of step %d: %w", l, w.plan.Start, err)
			}
		}
		if of != Moments {
			h.step = w.plan.Start
			h.stack.RoundWeights(w.queue, w.opt.rounding(h.step))
		}
	}
	if of == Moments {
		return nil // the step that goes on has the queue
	}
	return w.queue.Sync()
}

// fetch has the keeper write what the views hold together.
func (w *Worker) fetch(ctx context.Context, queue kernels.Queue, layer int, of Part, views []kernels.View) error {
	if len(views) == 0 {
		return nil
	}
	dst := &viewWriter{queue: queue, views: views, check: w.checkState(w.plan.Start, w.source(), layer)}
	if err := w.cfg.Keeper.Load(ctx, layer, of, dst); err != nil {
		return err
	}
	return dst.complete()
}

// loadInitial leaves the moments as they were allocated: zero. Weights that the run names may not
// reach to the adapters after them.
func (w *Worker) loadInitial(ctx context.Context, h *StageRuntime, layer int) error {
	params, base, init := h.stack.Params(layer), w.spec.Model.Base().LayerLen(layer), w.spec.Init
	if init == nil || params.Len > base && !init.Adapters {
		piece := make([]float32, min(params.Len, transferBytes/4))
		for first := 0; first < params.Len; first += len(piece) {
			part := piece[:min(len(piece), params.Len-first)]
			w.spec.Model.InitRange(layer, w.spec.Train.Seed, first, part)
			w.queue.Write(params.Slice(first, len(part)), kernels.Float32Bytes(part))
			if err := w.queue.Sync(); err != nil {
				return err
			}
		}
	}
	if init == nil {
		return nil
	}
	if !init.Adapters {
		params = params.Slice(0, base)
	}
	return w.fetch(ctx, w.queue, layer, Whole, []kernels.View{params})
}
