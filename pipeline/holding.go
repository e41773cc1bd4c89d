package pipeline

import (
	"fmt"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// holding is one stage of one replica on a worker: its layers with their state, and the
// micro-batches in flight there.
type holding struct {
	plan.StageID
	place plan.Placement
	pipe  plan.Pipeline
	// shares are by layer what the stack has of the optimizer state; nil: all.
	shares []model.Share
	// codecs of the boundaries behind each stage of pipe.
	codecs []wire.Codec
	stack  *model.Stack
	// step is the one after which the parameters are as they are.
	step plan.Step
	// patches are what its optimizer updates, ferry brings their state from the host; nil where the
	// device has it.
	patches []patch
	ferry   *ferry
	slots   slots
	// before and behind are the neighbouring stages where this worker holds them too.
	before, behind *holding
	// activations and gradients copy messages to the device: a gradient, which has its place, does
	// not wait for an activation whose landing is in use. downloads copies the others. arriving are
	// the messages that are being fetched, leaving the gradients in each slot that are being sent.
	activations, gradients, downloads copier
	arriving                          map[wire.Tag]*arrival
	leaving                           leaving
	// landing takes activations for which there is no slot yet; nil where they are not expected.
	landing kernels.Buffer
	// saves and reductions read and write beside the passes.
	saves, reductions kernels.Queue
	saving            saving
	gathering         pending
	times             StageTimes
	// sentForth and sentBack are what was sent since it was logged.
	sentForth, sentBack CodecUse
}

// newHolding allocates a stage for the use that a worker's program makes of it. On an error it
// gives what is there, to be closed.
func newHolding(cfg Config, at plan.StageID, use schedule.Use) (*holding, error) {
	h := &holding{
		StageID: at, pipe: cfg.Plan.Replicas[at.Replica], place: cfg.Plan.At(at),
		shares: cfg.Plan.Shares(at), arriving: map[wire.Tag]*arrival{},
	}
	h.seat(use)
	stack := cfg.Run.Stack(h.place, h.shares, use)
	stack.Device, stack.Host = cfg.Device, cfg.Host
	var err error
	if h.codecs, err = boundaryCodecs(h.pipe); err != nil {
		return h, err
	}
	if h.stack, err = model.NewStack(stack); err != nil {
		return h, fmt.Errorf("pipeline: layers [%d,%d): %w", stack.First, stack.End, err)
	}
	h.patches = patches(h.stack, cfg.Run.Model, h.place.Layers)
	if h.ferry, err = newFerry(cfg.Device, h.stack, h.patches); err != nil {
		return h, err
	}
	if h.saves, err = cfg.Device.NewQueue(); err != nil {
		return h, err
	}
	if h.reductions, err = cfg.Device.NewQueue(); err != nil {
		return h, err
	}
	for _, c := range []*copier{&h.activations, &h.gradients, &h.downloads} {
		if *c, err = newCopier(cfg.Device); err != nil {
			return h, err
		}
	}
	return h, nil
}

// seat makes slots for a program's micro-batches in flight.
func (h *holding) seat(use schedule.Use) {
	h.slots, h.leaving = newSlots(use), make(leaving, use.Slots)
}

// resize makes room for another program's micro-batches in flight. None may be under way.
func (h *holding) resize(use schedule.Use) error {
	h.seat(use)
	if err := h.stack.Resize(model.Passes{Slots: use.Slots, Segments: use.Segments, Split: use.Split}); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	return nil
}

// input, output and their gradients are the rows of a part in flight.
func (h *holding) input(p part) []kernels.View {
	return h.stack.Rows(h.stack.Slot(h.slots.of(p.micro)).Input(), p.Segment)
}

func (h *holding) output(p part) []kernels.View {
	return h.stack.Rows(h.stack.Slot(h.slots.of(p.micro)).Output(), p.Segment)
}

func (h *holding) inputGrad(p part) []kernels.View {
	return h.stack.Rows(h.stack.Slot(h.slots.of(p.micro)).InputGrad(), p.Segment)
}

func (h *holding) outputGrad(p part) []kernels.View {
	return h.stack.Rows(h.stack.Slot(h.slots.of(p.micro)).OutputGrad(), p.Segment)
}

func (h *holding) first() bool { return h.Stage == 0 }
func (h *holding) last() bool  { return int(h.Stage) == len(h.pipe.Stages)-1 }

// share is what is here of a layer's optimizer state.
func (h *holding) share(layer int) model.Share {
	if h.shares == nil {
		return model.Share{}
	}
	return h.shares[layer-h.place.Layers.First]
}

// inParts tells whether the other replicas have the rest of a layer's optimizer state.
func (h *holding) inParts(layer int) bool { return h.share(layer).Count > 1 }

// layersInParts are those of which the other replicas have the rest, in order.
func (h *holding) layersInParts() []int {
	return slices.DeleteFunc(h.layers(), func(l int) bool { return !h.inParts(l) })
}

// layers are those of the stage, in order.
func (h *holding) layers() []int {
	var all []int
	for l := h.place.Layers.First; l < h.place.Layers.End; l++ {
		all = append(all, l)
	}
	return all
}

// grads are the gradients of the layers.
func (h *holding) grads() (all []kernels.View) {
	for _, l := range h.layers() {
		all = append(all, h.stack.Grads(l))
	}
	return all
}

// copiers are those of messages and of optimizer state.
func (h *holding) copiers() []*copier {
	return append([]*copier{&h.activations, &h.gradients, &h.downloads}, h.ferry.copiers()...)
}

// carriers are the copiers of messages that the boundaries' codecs ask to be in int8.
func (h *holding) carriers() (all []*copier) {
	before := !h.first() && h.before == nil && h.codecs[h.Stage-1] == wire.Int8
	behind := !h.last() && h.behind == nil && h.codecs[h.Stage] == wire.Int8
	if before {
		all = append(all, &h.activations)
	}
	if behind {
		all = append(all, &h.gradients)
	}
	if before || behind {
		all = append(all, &h.downloads)
	}
	return all
}

func (h *holding) close() {
	for _, q := range []kernels.Queue{h.saves, h.reductions} {
		if q != nil {
			q.Close()
		}
	}
	for _, c := range h.copiers() {
		c.close()
	}
	h.raze()
	if h.stack != nil {
		h.stack.Close()
	}
}
