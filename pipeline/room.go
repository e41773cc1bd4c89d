package pipeline

import (
	"fmt"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// checkRoom refuses a plan whose stages here want more memory than the device or the host may
// give, before any of it is taken. The error wraps kernels.ErrOutOfMemory.
func (w *Worker) checkRoom() error {
	var device, beside int64
	for _, at := range w.cfg.Plan.StagesOf(w.cfg.Seat) {
		need, err := w.need(at)
		if err != nil {
			return err
		}
		device, beside = device+need.Total(), beside+need.Host
	}
	if limited, ok := w.cfg.Device.(kernels.Limited); ok && device > limited.MemoryLeft() {
		return w.tooMuch("", device, limited.MemoryLeft())
	}
	if host := w.cfg.Host; host != nil && beside > host.MemoryLeft() {
		return w.tooMuch(" in host memory for optimizer state", beside, host.MemoryLeft())
	}
	return nil
}

func (w *Worker) tooMuch(where string, need, left int64) error {
	return fmt.Errorf("pipeline: %s: %w: generation %d needs %d bytes%s, %d are available",
		w.cfg.Seat.Device, kernels.ErrOutOfMemory, w.cfg.Plan.Generation, need, where, left)
}

// need is what a stage allocates.
func (w *Worker) need(at plan.StageID) (model.Memory, error) {
	plan, run := w.cfg.Plan, w.cfg.Run
	stack := run.Stack(plan.At(at), plan.Shares(at), w.list.Use(w.number, at.Replica, at.Stage))
	stack.Device = w.cfg.Device
	return stack.Memory()
}

// warm has all queues take what copies need besides memory of the device. Nobody uses them yet.
func (w *Worker) warm() error {
	if err := warm(w.queue, kernels.Whole(w.square)); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	for _, h := range w.holdings {
		queues := []kernels.Queue{h.reductions, h.saves}
		for _, c := range h.copiers() {
			queues = append(queues, c.queue)
		}
		for _, q := range queues {
			if err := warm(q, kernels.Whole(w.square)); err != nil {
				return fmt.Errorf("pipeline: replica %d stage %d: %w", h.Replica, h.Stage, err)
			}
		}
	}
	return nil
}

// prepare takes what the calls of a step need besides the stages' memory: none fails for want of
// it. What is left may be landings, packings, and what the calls of twins need.
func (w *Worker) prepare() error {
	if err := w.prepareCalls(); err != nil {
		return err
	}
	for _, h := range w.holdings {
		w.land(h)
		w.pack(h)
	}
	w.takeTwins()
	return nil
}

// prepareCalls takes what calls need besides their operands.
func (w *Worker) prepareCalls() error {
	preparer, ok := w.queue.(kernels.Preparer)
	if !ok {
		return nil
	}
	for _, h := range w.holdings {
		err := h.stack.Prepare(w.queue)
		if longest := slices.MaxFunc(h.grads(), shorter); err == nil && longest.Len > 0 {
			err = preparer.Prepare(kernels.SumSquares(kernels.Whole(w.square), longest, longest.Len))
		}
		if err != nil {
			return fmt.Errorf("pipeline: prepare replica %d stage %d: %w", h.Replica, h.Stage, err)
		}
	}
	return nil
}

func shorter(a, b kernels.View) int { return a.Len - b.Len }

// land gives a stage a landing for the activations that come to it, where copies take a while and
// the device has room beyond the plan.
func (w *Worker) land(h *holding) {
	if h.first() || h.before != nil || h.landing != nil {
		return
	}
	n := h.stack.Slot(0).Input().Len
	if !w.spare(int64(4 * n)) {
		return
	}
	if landing, err := w.cfg.Device.Alloc(kernels.F32, n); err == nil { // else it is done without
		h.landing = landing
	}
}

// pack gives those who copy messages of a stage in int8 memory to pack them on the device, under
// the same conditions.
func (w *Worker) pack(h *holding) {
	for _, c := range h.carriers() {
		boundary := h.stack.Slot(0).Output
		if !h.first() {
			boundary = h.stack.Slot(0).Input
		}
		n := boundary().Len
		if c.packing == nil && w.spare(packingBytes(n)) {
			c.packing, _ = newPacking(w.cfg.Device, n) // or the host does it
		}
	}
}

// spare tells whether copies to the device take a while and it has so many bytes beyond the plan.
func (w *Worker) spare(bytes int64) bool {
	distant, ok := w.cfg.Device.(kernels.Distant)
	limited, counts := w.cfg.Device.(kernels.Limited)
	return ok && distant.Distant() && counts && bytes <= limited.MemoryLeft()
}

// raze gives landing and packings back.
func (h *holding) raze() {
	if h.landing != nil {
		h.landing.Free()
		h.landing = nil
	}
	for _, c := range []*copier{&h.activations, &h.gradients, &h.downloads} {
		c.packing.free()
		c.packing = nil
	}
}
