package cuda

import (
	"errors"
	"time"
	"unsafe"

	"pnode/kernels/gpu"
)

// Record records an event of the driver.
func (s *stream) Record(used gpu.Mark) (mark gpu.Mark, err error) {
	err = s.driver.do(func() error {
		if mark = used; mark == 0 {
			const blockingSync = 1 // who waits sleeps
			var handle uintptr
			if err := s.driver.lib.check(eventCreate, uintptr(unsafe.Pointer(&handle)), blockingSync); err != nil {
				return err
			}
			mark = gpu.Mark(handle)
		}
		if err := s.flush(); err != nil {
			return err
		}
		return s.driver.lib.check(eventRecord, uintptr(mark), s.handle)
	})
	return mark, err
}

// Await has the stream wait for an event.
func (s *stream) Await(m gpu.Mark) error {
	return s.driver.do(func() error {
		if err := s.flush(); err != nil {
			return err
		}
		return s.driver.lib.check(streamWaitEvent, s.handle, uintptr(m), 0)
	})
}

// Reach waits for an event.
func (d *driver) Reach(m gpu.Mark) error {
	return d.do(func() error { return d.lib.check(eventSynchronize, uintptr(m)) })
}

// Between is in steps of half a microsecond.
func (d *driver) Between(from, to gpu.Mark) (time.Duration, bool) {
	var milliseconds float32
	err := d.do(func() error {
		return d.lib.check(eventElapsedTime, uintptr(unsafe.Pointer(&milliseconds)), uintptr(from), uintptr(to))
	})
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err == nil
}

// Drop destroys an event. A closed card has taken it already.
func (d *driver) Drop(m gpu.Mark) error {
	err := d.do(func() error { return d.lib.check(eventDestroy, uintptr(m)) })
	if errors.Is(err, gpu.ErrClosed) {
		return nil
	}
	return err
}

// Peek copies by the default stream, for which the others do not wait.
func (d *driver) Peek(to []byte, from gpu.Memory) error {
	return d.do(func() error {
		return d.lib.check(memcpyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(from), uintptr(len(to)))
	})
}
