package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// heldOutMicros bounds how many held-out micro-batches one evaluation runs.
const heldOutMicros = 8

// errTooLarge means that no link takes the message. Training may send half of it, or a quarter.
var errTooLarge = errors.New("a micro-batch in float32 is more than one message may be")

// evaluation holds the coordinator's losses of the parameters before a step; nil is a loss that was
// not measured, or is known elsewhere.
type evaluation struct {
	// heldOut is the held-out loss, f32 the same in float32 throughout where something is not so.
	heldOut, f32 *float64
}

// evaluatesIn reports whether a step has an evaluation, which the one after the last update is. With local steps it is the first one after an outer
// step, where a step since the outer step before would have had it: then the parameters are those of all replicas, but for inner steps made while messages travelled.
func (p *program) evaluatesIn(step plan.Step) bool {
	every := p.spec.Train.HeldOutEvery
	switch {
	case step > p.spec.Train.Steps:
		return true
	case every == 0:
		return false
	case p.local != nil:
		return step == p.met+1 && step/every > (p.before+1)/every
	}
	return step%every == 0
}

// evaluate computes the held-out loss of the parameters as they are before the step's update, on the
// steps that are due. Replica 0 does it, forwards only. Held-out micro-batches are numbered after the
// step's training micro-batches, so that tags never meet. Where replica 0 is not in float32
// throughout, messages included, all of them run once more, through the float32 shadows.
func (s *stepRun) evaluate() (e evaluation, err error) {
	train := s.spec.Train
	if !s.evaluatesIn(s.step) {
		return e, nil
	}
	if err := s.allGathered(); err != nil {
		return e, err
	}
	s.time.idle = time.Now()
	n := s.cfg.Data.HeldOutMicros(train.MicroBatch, heldOutMicros)
	e.heldOut, err = s.heldOutLoss(s.stages, n, func(h *stageRun, k int) (float64, error) {
		return s.evaluateMicro(h, plan.Micro(train.Micros+k))
	})
	if err != nil || len(s.shadows) == 0 {
		return e, err
	}
	measured := true
	f32, err := s.heldOutLoss(s.shadows, n, func(h *stageRun, k int) (float64, error) {
		loss, err := s.evaluateShadow(h, s.shadowMicro(k))
		if errors.Is(err, errNothing) {
			measured = false
			for h.next != nil {
				h = h.next
			}
			if h.last() {
				return 0, nil
			}
			tag := s.tag(wire.Activation, h, h.Stage+1, part{micro: s.shadowMicro(k)})
			return 0, s.cfg.Exchange.Send(s.ctx, h.pipe.Stages[tag.Stage].Peer, wire.Frame{Tag: tag}) // without a tensor
		}
		return loss, err
	})
	if err == nil && measured && f32 != nil {
		e.f32 = f32
		s.cfg.Log.Info("held-out loss, and in float32 throughout",
			"step", s.step, "held_out", *e.heldOut, "f32", *f32, "cost", *e.heldOut-*f32)
	}
	return e, err
}

// heldOutLoss has the stages that begin a chain here run n held-out micro-batches, and returns their
// mean loss on the coordinator. Each chain is one micro-batch later than the one before it: between
// two workers that have several, few messages wait, which links have room for.
func (s *stepRun) heldOutLoss(stages []*stageRun, n int, run func(h *stageRun, k int) (float64, error)) (*float64, error) {
	var chains []*stageRun
	for _, h := range stages {
		if h.Replica == 0 && h.prev == nil {
			chains = append(chains, h)
		}
	}
	sum := 0.0
	for turn := range n + len(chains) {
		for later, h := range chains {
			k := turn - later
			if k < 0 || k >= n {
				continue
			}
			if err := s.ctx.Err(); err != nil {
				return nil, err
			}
			loss, err := run(h, k)
			if err != nil {
				return nil, err
			}
			sum += loss
		}
	}
	if !s.coordinates() || n == 0 {
		return nil, nil
	}
	mean := sum / float64(n)
	return &mean, nil
}

// evaluateMicro runs a micro-batch forward through a stage and those that follow it here. It returns
// the loss, or 0 where the last stage is not among them.
func (s *stepRun) evaluateMicro(h *stageRun, micro plan.Micro) (float64, error) {
	p := part{micro: micro}
	if err := s.forward(h, p); err != nil {
		return 0, err
	}
	defer h.slots.drop(micro)
	switch slot := h.slot(micro); {
	case h.last():
		slot.Loss(s.queue)
		rows := readLosses(s.queue, slot)
		if err := s.queue.Sync(); err != nil {
			return 0, err
		}
		return mean(rows), nil
	case h.next != nil:
		return s.evaluateMicro(h.next, micro)
	default:
		_, err := s.send(h, h.output(p), s.tag(wire.Activation, h, h.Stage+1, p))
		return 0, err
	}
}

// evaluateShadow runs a micro-batch through the shadow of a stage and of those that follow it here.
// The error is errNothing where a stage has no shadow, here or before.
func (s *stepRun) evaluateShadow(h *stageRun, micro plan.Micro) (float64, error) {
	if !s.blind {
		loss, err := s.evaluateMicro(h, micro)
		if errors.Is(err, errNothing) {
			h.slots.drop(micro)
		}
		return loss, err
	}
	if !h.first() {
		tag := s.tag(wire.Activation, h, h.Stage, part{micro: micro})
		if _, err := s.cfg.Exchange.Receive(s.ctx, h.pipe.Stages[h.Stage-1].Peer, tag); err != nil {
			return 0, err
		}
	}
	return 0, errNothing
}

// unmeasured reports whether no worker has float32 shadows after a commit. All drop theirs where an evaluation went without a loss in float32,
// and make them anew with another schedule.
func unmeasured(before bool, c wire.Commit) bool {
	return c.Next == "" && (before || c.HeldOut != nil && c.HeldOutF32 == nil)
}

// takeShadows makes the float32 shadows of the stages here that evaluate, where not all is float32 in
// their pipeline and between its stages. A stage that cannot have one logs it: training does not
// depend on it.
func (w *Worker) takeShadows() {
	w.shadows, w.shadowErr = nil, nil
	if w.unmeasured || !w.spec.Train.Rounds(w.plan) {
		return
	}
	message := wire.TensorBytes(wire.F32, w.tokensPerMicro()*w.spec.Model.Channels, w.spec.Model.Channels)
	if len(w.plan.Replicas[0].Stages) > 1 && message > wire.MaxTensorBytes {
		w.shadowErr = errTooLarge // for every stage
	} else {
		for _, h := range w.stages {
			if h.Replica == 0 {
				t, err := h.shadow(w.queue)
				w.shadows, w.shadowErr = append(w.shadows, t), errors.Join(w.shadowErr, err)
			}
		}
	}
	if w.shadowErr != nil {
		w.cfg.Log.Warn("what lower precision costs will not be measured: the held-out loss cannot be computed in float32 here",
			"device", w.worker.Device, "cause", w.shadowErr)
	}
}

// shadow returns the stage for forwards in float32, from the parameters that it has, over the same
// links, as tensors in float32: nothing of the stage's own may be in flight then. It uses the memory
// and the queues of the stage, which closes them.
func (h *StageRuntime) shadow(q kernels.Queue) (*StageRuntime, error) {
	t := &StageRuntime{
		StageID: h.StageID, place: h.place, pipe: h.pipe, use: schedule.Use{Slots: 1},
		codecs:      slices.Repeat([]wire.Codec{wire.F32}, len(h.codecs)),
		activations: h.activations, downloads: h.downloads,
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
