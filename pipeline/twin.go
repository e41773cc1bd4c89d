package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// errNothing: a message in place of a tensor says that there is none.
var errNothing = errors.New("nothing was computed")

// errTooMuch: no link takes the message. Training may send half of it, or a quarter.
var errTooMuch = errors.New("a micro-batch in float32 is more than one message may be")

// takeTwins makes the twins of the stages here that evaluate, where not all is float32 in their
// pipeline and between its stages. Those that cannot have one say so: training does not depend on it.
func (w *Worker) takeTwins() {
	w.twins, w.untwinned = nil, nil
	if !w.cfg.Run.Train.Rounds(w.cfg.Plan) {
		return
	}
	defer func() {
		if w.untwinned != nil {
			w.cfg.Log.Warn("what lower precision costs will not be measured: the held-out loss cannot be computed in float32 here", "device", w.cfg.Seat.Device, "cause", w.untwinned)
		}
	}()
	message := wire.TensorBytes(wire.F32, w.tokensPerMicro()*w.cfg.Run.Model.Channels)
	if len(w.cfg.Plan.Replicas[0].Stages) > 1 && message > wire.MaxTensorBytes {
		w.untwinned = errTooMuch // for every stage
		return
	}
	for _, h := range w.holdings {
		if h.Replica == 0 {
			t, err := h.twin(w.queue)
			w.twins, w.untwinned = append(w.twins, t), errors.Join(w.untwinned, err)
		}
	}
	join(w.twins)
}

// dropTwins ends what a commit shows to be of no use: some stage has no twin. All workers hear the
// same.
func (w *Worker) dropTwins(c wire.Commit) {
	if c.HeldOut != nil && c.HeldOutF32 == nil {
		w.twins = nil
	}
}

// ofTwins tells whether a message is one of an evaluation in float32, which may be empty.
func (w *Worker) ofTwins(t wire.Tag) bool {
	return t.Kind == wire.Activation && w.part(plan.Micro(t.Index)).micro >= w.twinMicro(0)
}

// twin is the stage for passes forward in float32, from the parameters that it has, over the same
// links, as tensors in float32: nothing of the stage's own may be in flight then. It has the
// memory, queues and copiers of the stage, which closes them.
func (h *holding) twin(q kernels.Queue) (*holding, error) {
	t := &holding{
		StageID: h.StageID, place: h.place, pipe: h.pipe, slots: newSlots(schedule.Use{Slots: 1}),
		codecs:      slices.Repeat([]wire.Codec{wire.F32}, len(h.codecs)),
		activations: h.activations, downloads: h.downloads, arriving: map[wire.Tag]*arrival{},
	}
	var err error
	if t.stack, err = h.stack.Shadow(); err == nil && t.stack != h.stack {
		err = t.stack.Prepare(q)
	}
	if err != nil {
		return t, fmt.Errorf("replica %d stage %d: %w", h.Replica, h.Stage, err)
	}
	return t, nil
}

// evaluateTwins computes the held-out loss once more with all in float32. It is nil where all is
// already, where a stage has no twin, and in any case but at the last stage.
func (w *Worker) evaluateTwins(ctx context.Context, step plan.Step, n int) (*float64, error) {
	measured := true
	loss, err := w.heldOutLoss(ctx, w.twins, n, func(h *holding, k int) (float64, error) {
		loss, err := w.evaluateTwin(ctx, h, step, w.twinMicro(k))
		if errors.Is(err, errNothing) {
			measured = false
			return 0, w.sendNothing(ctx, h, step, w.twinMicro(k))
		}
		return loss, err
	})
	if !measured {
		return nil, err
	}
	return loss, err
}

// twinMicro numbers held-out micro-batch k of the twins, behind all of the others' numbers.
func (w *Worker) twinMicro(k int) plan.Micro {
	return plan.Micro(w.cfg.Run.Train.Micros + heldOutMicros + k)
}

// evaluateTwin runs a micro-batch through the twins of a stage and of those that follow it here.
// The error is errNothing where there is a stage without a twin, here or before.
func (w *Worker) evaluateTwin(ctx context.Context, h *holding, step plan.Step, micro plan.Micro) (float64, error) {
	if w.untwinned == nil {
		loss, err := w.evaluateMicro(ctx, h, step, micro)
		if errors.Is(err, errNothing) {
			h.slots.drop(micro)
		}
		return loss, err
	}
	if !h.first() {
		tag := w.message(wire.Activation, h, 0, step, part{micro: micro})
		if _, err := w.cfg.Exchange.Receive(ctx, h.pipe.Stages[h.Stage-1].Peer, tag); err != nil {
			return 0, err
		}
	}
	return 0, errNothing
}

// sendNothing tells the worker behind the stages from h on that no tensor will come.
func (w *Worker) sendNothing(ctx context.Context, h *holding, step plan.Step, micro plan.Micro) error {
	for h.behind != nil {
		h = h.behind
	}
	if h.last() {
		return nil
	}
	tag := w.message(wire.Activation, h, +1, step, part{micro: micro})
	return w.cfg.Exchange.Send(ctx, h.pipe.Stages[tag.Stage].Peer, wire.Frame{Tag: tag})
}
