package pipeline

import (
	"fmt"

	"pnode/kernels"
	"pnode/kernels/quant"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// checkMemory refuses a plan whose stages here want more memory than the device or the host may give,
// before any of it is taken. The error wraps kernels.ErrOutOfMemory.
func (w *Worker) checkMemory(donors map[plan.StageID]map[int]*model.Stack) error {
	device, host := w.squaresBytes(), int64(0)
	for _, at := range w.plan.StagesOf(w.worker) {
		stack := w.spec.StageStack(w.plan, at, w.list.Use(w.number, at.Replica, at.Stage))
		stack.Device, stack.Host, stack.From = w.cfg.Device, w.cfg.Host, donors[at]
		need, err := stack.Memory()
		if err != nil {
			return err
		}
		device, host = device+need.Total(), host+need.Host
	}
	refuse := func(where string, need, left int64) error {
		return fmt.Errorf("pipeline: %s: %w: generation %d needs %d bytes%s, %d are available",
			w.worker.Device, kernels.ErrOutOfMemory, w.plan.Generation, need, where, left)
	}
	if limited, ok := w.cfg.Device.(kernels.Limited); ok && device > limited.MemoryLeft() {
		return refuse("", device, limited.MemoryLeft())
	}
	if memory := w.cfg.Host; memory != nil && host > memory.MemoryLeft() {
		return refuse(" in host memory for optimizer state", host, memory.MemoryLeft())
	}
	return nil
}

// warmQueues makes one copy on each queue, which takes what copies need besides memory of the device.
func (w *Worker) warmQueues() error {
	warm := func(q kernels.Queue) error {
		q.Read(make([]byte, 4), kernels.Whole(w.squares).Slice(0, 1))
		return q.Sync()
	}
	if err := warm(w.queue); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	for _, h := range w.stages {
		queues := []kernels.Queue{h.reductions.queue, h.saves}
		for _, c := range h.copyQueues() {
			queues = append(queues, c.queue)
		}
		for _, q := range queues {
			if err := warm(q); err != nil {
				return fmt.Errorf("pipeline: replica %d stage %d: %w", h.Replica, h.Stage, err)
			}
		}
	}
	return nil
}

// prepare takes what the calls of a step need besides the stages' memory, so that none fails for want
// of it. From what is left it takes landings, quantizers, and what the calls of shadows need.
func (w *Worker) prepare() error {
	if preparer, ok := w.queue.(kernels.Preparer); ok {
		for _, h := range w.stages {
			err := h.stack.Prepare(w.queue)
			var longest kernels.View
			for _, l := range h.layers() {
				if g := h.stack.Grads(l); g.Len > longest.Len {
					longest = g
				}
			}
			if err == nil && longest.Len > 0 {
				err = preparer.Prepare(kernels.SumSquares(kernels.Whole(w.squares).Slice(0, 1), longest, longest.Len))
			}
			if err != nil {
				return fmt.Errorf("pipeline: prepare replica %d stage %d: %w", h.Replica, h.Stage, err)
			}
		}
	}
	for _, h := range w.stages {
		h.takeSpare(w.cfg.Device, w.spec.Model.Channels)
	}
	w.takeShadows()
	return nil
}

// takeSpare returns a stage a landing for the activations that come to it, and quantizers for messages
// in int8: where copies take a while and the device has room beyond the plan. A token has so many elements.
func (h *StageRuntime) takeSpare(d kernels.Device, token int) {
	spare := func(bytes int64) bool {
		distant, ok := d.(kernels.Distant)
		limited, counts := d.(kernels.Limited)
		return ok && distant.Distant() && counts && bytes <= limited.MemoryLeft()
	}
	if h.receives() && h.landing == nil {
		if n := h.stack.Slot(0).Input().Len; spare(int64(4 * n)) {
			if landing, err := d.Alloc(kernels.F32, n); err == nil { // else the stage does without
				h.landing = landing
			}
		}
	}
	before := h.receives() && h.codecs[h.Stage-1] == wire.Int8
	after := h.sends() && h.codecs[h.Stage] == wire.Int8
	boundary := h.stack.Slot(0).Output
	if !h.first() {
		boundary = h.stack.Slot(0).Input
	}
	quantize := func(c *copyQueue, wanted bool) {
		if !wanted || c.quantizer != nil || token%quant.Group != 0 { // groups are of one token, which the host sees to then
			return
		}
		if n := boundary().Len; spare(4 * int64(quant.Words(n)+2*quant.Groups(n))) {
			c.quantizer, _ = newQuantizer(d, n) // or the host packs
		}
	}
	quantize(&h.activations, before)
	quantize(&h.gradients, after)
	quantize(&h.downloads, before || after)
}

// freeSpare frees the landing and the quantizers.
func (h *StageRuntime) freeSpare() {
	if h.landing != nil {
		h.landing.Free()
		h.landing = nil
	}
	for _, c := range []*copyQueue{&h.activations, &h.gradients, &h.downloads} {
		c.quantizer.free()
		c.quantizer = nil
	}
}
