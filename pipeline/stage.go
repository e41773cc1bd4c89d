package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// StageRuntime owns one stage of one replica on a worker for a generation: its layers with their
// state, the queues that copy to and from them, and the save in progress.
type StageRuntime struct {
	plan.StageID
	place plan.Placement
	pipe  plan.Pipeline
	// shares say by layer which part of the optimizer state is here; nil: all of it.
	shares []model.Share
	// codecs names the codec of each boundary of the pipeline by the stage before it.
	codecs []wire.Codec
	stack  *model.Stack
	use    schedule.Use // slots and segments that the worker's program needs here
	step   plan.Step    // the last update of the parameters
	torn   bool         // which has not come to its end
	// updates are the ranges that the optimizer updates here; offload brings their state from host
	// memory, and is nil where the device has it.
	updates []updateRange
	// matrices are those that are updated as a whole.
	matrices []updateRange
	offload  *offloadEngine
	// A gradient, which has its place, does not wait for an activation whose landing is in use: they
	// have upload queues of their own.
	activations, gradients, downloads copyQueue
	// landing takes activations for which there is no slot yet; nil where none are expected.
	landing kernels.Buffer
	// saves and reductions read and write concurrently with the kernels.
	saves             kernels.Queue
	reductions        copyQueue
	saving, gathering background
	unread            *unread // by the save in progress
	// sentForward and sentBack add up codec use since it was logged last.
	sentForward, sentBack CodecUse
}

// newStageRuntime allocates a stage for the use that a worker's program makes of it. It takes the state of layers over from
// donors. On an error it returns what is there, to be closed.
func newStageRuntime(cfg *Config, p *program, at plan.StageID, donors map[int]*model.Stack) (*StageRuntime, error) {
	h := &StageRuntime{
		StageID: at, pipe: p.plan.Replicas[at.Replica], place: p.plan.At(at), shares: p.plan.Shares(at),
		use: p.list.Use(p.number, at.Replica, at.Stage),
	}
	stack := p.spec.StageStack(p.plan, at, h.use)
	stack.Device, stack.Host, stack.From = cfg.Device, cfg.Host, donors
	var err error
	if h.codecs, err = boundaryCodecs(h.pipe); err != nil {
		return h, err
	}
	if h.stack, err = model.NewStack(stack); err != nil {
		return h, fmt.Errorf("pipeline: layers %v: %w", plan.LayerRange{First: stack.First, End: stack.End}, err)
	}
	h.updates, h.matrices = updateRanges(h.stack, p.spec, h.place.Layers)
	if h.offload, err = newOffloadEngine(cfg.Device, h.stack, h.updates); err != nil {
		return h, err
	}
	if h.saves, err = cfg.Device.NewQueue(); err != nil {
		return h, err
	}
	for _, c := range []*copyQueue{&h.activations, &h.gradients, &h.downloads, &h.reductions} {
		if *c, err = newCopyQueue(cfg.Device); err != nil {
			return h, err
		}
	}
	return h, nil
}

// boundaryCodecs parses the codecs of a pipeline's boundaries, each named by the stage before it.
func boundaryCodecs(pipe plan.Pipeline) ([]wire.Codec, error) {
	codecs := make([]wire.Codec, len(pipe.Stages))
	for s, place := range pipe.Stages {
		codecs[s] = wire.F32
		if place.Codec == "" {
			continue
		}
		var err error
		if codecs[s], err = wire.ParseCodec(place.Codec); err != nil {
			return nil, fmt.Errorf("%w: boundary after stage %d: %w", ErrBadConfig, s, err)
		}
	}
	return codecs, nil
}

func (h *StageRuntime) first() bool { return h.Stage == 0 }
func (h *StageRuntime) last() bool  { return int(h.Stage) == len(h.pipe.Stages)-1 }

// receives reports whether activations come to the stage from another worker, sends whether they go
// to another one.
func (h *StageRuntime) receives() bool {
	return !h.first() && h.pipe.Stages[h.Stage-1].Worker() != h.place.Worker()
}

func (h *StageRuntime) sends() bool {
	return !h.last() && h.pipe.Stages[h.Stage+1].Worker() != h.place.Worker()
}

// source returns the stage that sends this one messages of a kind.
func (h *StageRuntime) source(k wire.Kind) plan.Stage {
	if k == wire.Gradient {
		return h.Stage + 1
	}
	return h.Stage - 1
}

// share returns which part of a layer's optimizer state is here.
func (h *StageRuntime) share(layer int) model.Share {
	if h.shares == nil {
		return model.Share{}
	}
	return h.shares[layer-h.place.Layers.First]
}

// inParts reports whether the other replicas have the rest of a layer's optimizer state.
func (h *StageRuntime) inParts(layer int) bool { return h.share(layer).Count > 1 }

// layersInParts returns the layers of which the other replicas have the rest, in order.
func (h *StageRuntime) layersInParts() []int {
	return slices.DeleteFunc(h.layers(), func(l int) bool { return !h.inParts(l) })
}

// layers returns the numbers of the stage's layers, in order.
func (h *StageRuntime) layers() []int {
	var all []int
	for l := h.place.Layers.First; l < h.place.Layers.End; l++ {
		all = append(all, l)
	}
	return all
}

// tiedGrads returns the tied range of a layer's gradient as far as it is added up here: the front of
// the embedding's vector or the tail of the head's, of n elements.
func (h *StageRuntime) tiedGrads(layer, n int) kernels.View {
	grads, first := h.stack.Grads(layer), 0
	if layer > 0 {
		first = grads.Len - n
	}
	own := h.share(layer).Of(model.Range{First: 0, End: n})
	return grads.Slice(first+own.First, own.Len())
}

// isRead blocks until a save in progress has read the stage's state.
func (h *StageRuntime) isRead(ctx context.Context) error {
	return h.unread.wait(ctx)
}

// onHost runs f on a host copy of a view and writes the copy back, concurrently with the kernels.
func (h *StageRuntime) onHost(v kernels.View, f func([]float32) error) error {
	return h.allOnHost([]kernels.View{v}, func(host [][]float32) error { return f(host[0]) })
}

// allOnHost runs f on host copies of views and writes the last copy back, concurrently with the kernels.
func (h *StageRuntime) allOnHost(views []kernels.View, f func([][]float32) error) error {
	host := make([][]float32, len(views))
	read := func(q kernels.Queue) {
		for i, v := range views {
			host[i] = make([]float32, v.Len)
			q.Read(kernels.Float32Bytes(host[i]), v)
		}
	}
	if err := h.reductions.run(&transfer{do: read}); err != nil {
		return err
	}
	if err := f(host); err != nil {
		return err
	}
	last := len(views) - 1
	return h.reductions.run(&transfer{do: func(q kernels.Queue) { q.Write(views[last], kernels.Float32Bytes(host[last])) }})
}

// gathered blocks until the stage has all of its parameters, and enqueues their rounding where
// products read them in halves.
func (h *StageRuntime) gathered(q kernels.Queue, opt Optimizer) error {
	if h.gathering == nil {
		return nil
	}
	if err := h.gathering.wait(); err != nil {
		return err
	}
	h.stack.RoundWeights(q, opt.rounding(h.step))
	return nil
}

// logCodecs adds up what the stage sent in a step. Every codecSteps steps it logs that for each link
// on which tensors are rounded.
func (h *StageRuntime) logCodecs(log *slog.Logger, step plan.Step, times StageTimes) {
	h.sentForward, h.sentBack = h.sentForward.Plus(times.SentForward), h.sentBack.Plus(times.SentBack)
	if step%codecSteps != 0 {
		return
	}
	line := func(use CodecUse, boundary, to plan.Stage) {
		if use.Messages == 0 || h.codecs[boundary] == wire.F32 {
			return
		}
		log.Info("rounded what crosses a boundary", "step", step, "replica", h.Replica, "from", h.Stage, "to", to,
			"peer", h.pipe.Stages[to].Peer, "codec", h.codecs[boundary],
			"messages", use.Messages, "fell_back", use.FellBack, "rel_error", use.RelError)
	}
	line(h.sentForward, h.Stage, h.Stage+1)
	line(h.sentBack, h.Stage-1, h.Stage-1)
	h.sentForward, h.sentBack = CodecUse{}, CodecUse{}
}

// copyQueues returns the queues that copy messages and optimizer state.
func (h *StageRuntime) copyQueues() []*copyQueue {
	all := []*copyQueue{&h.activations, &h.gradients, &h.downloads}
	if h.offload != nil {
		all = append(all, &h.offload.up, &h.offload.down)
	}
	return all
}

// close frees the device memory. No step, save or gather may be under way.
func (h *StageRuntime) close() {
	for _, q := range []kernels.Queue{h.saves, h.reductions.queue} {
		if q != nil {
			q.Close()
		}
	}
	for _, c := range h.copyQueues() {
		if c.queue != nil {
			c.queue.Close()
		}
	}
	h.freeSpare()
	if h.stack != nil {
		h.stack.Close()
	}
}
