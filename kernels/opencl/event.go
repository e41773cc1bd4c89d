package opencl

import (
	"time"
	"unsafe"

	"pnode/kernels/gpu"
)

// Record enqueues a marker, whose event is new each time, and has the device begin with what is
// before it: other command queues may wait for that.
func (s *stream) Record(used gpu.Mark) (gpu.Mark, error) {
	if used != 0 {
		if err := s.driver.Drop(used); err != nil {
			return 0, err
		}
	}
	var event uintptr
	if code := s.driver.lib.call(enqueueMarker, s.handle, 0, 0, uintptr(unsafe.Pointer(&event))); code != success {
		return 0, code.err(enqueueMarker)
	}
	return gpu.Mark(event), s.driver.lib.call(flush, s.handle).err(flush)
}

// Await enqueues a barrier.
func (s *stream) Await(m gpu.Mark) error {
	return s.driver.lib.call(enqueueBarrier, s.handle, 1, uintptr(unsafe.Pointer(&m)), 0).err(enqueueBarrier)
}

// Reach waits for an event.
func (d *driver) Reach(m gpu.Mark) error {
	return d.lib.call(waitForEvents, 1, uintptr(unsafe.Pointer(&m))).err(waitForEvents)
}

// Between tells nothing: a command queue that takes times makes some drivers slow.
func (d *driver) Between(_, _ gpu.Mark) (time.Duration, bool) { return 0, false }

// Drop releases an event.
func (d *driver) Drop(m gpu.Mark) error { return d.lib.release(releaseEvent, uintptr(m)) }

// Peek reads by the command queue that clears new buffers.
func (d *driver) Peek(to []byte, from gpu.Memory) error {
	const blocking = 1
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return gpu.ErrClosed
	}
	return d.lib.call(enqueueReadBuffer, d.fills, uintptr(from), blocking, 0, uintptr(len(to)), uintptr(unsafe.Pointer(unsafe.SliceData(to))),
		0, 0, 0).err(enqueueReadBuffer)
}
