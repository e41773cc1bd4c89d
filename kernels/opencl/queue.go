package opencl

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// queue is an in-order command queue.
type queue struct {
	dev    *Device
	handle uintptr
	err    error

	plan gpu.Plan
	// What launches pass to the driver: the arguments of its function, and what these point to,
	// in the memory of the queue, so that a call allocates none.
	words [9]uintptr
	value uint64        // the argument of a kernel
	sizes [2][3]uintptr // work-items of the grid and of a group

	scratch uintptr
	floats  int // that scratch holds

	fault     uintptr // memory of the fault word
	faultRead int32
	checked   bool // whether a call since the last Sync may have set it

	pins runtime.Pinner // host memory of transfers under way
}

func (d *Device) newQueue() (*queue, error) {
	handle, err := d.commandQueue()
	if err != nil {
		return nil, err
	}
	fault, err := d.memory(4)
	if err != nil {
		return nil, errors.Join(err, d.lib.release(resource{releaseCommandQueue, handle}))
	}
	return &queue{dev: d, handle: handle, fault: fault, plan: gpu.Plan{Geometry: d.program.geometry}}, nil
}

func (q *queue) Do(c kernels.Call) {
	if q.err != nil {
		return
	}
	if q.err = q.dev.Supports(c); q.err != nil {
		return
	}
	q.plan.Make(c)
	q.checked = q.checked || q.plan.Checked
	if err := q.execute(); err != nil {
		q.err = fmt.Errorf("%s: %v: %w", q.dev.Name(), c, err)
	}
}

func (q *queue) Write(dst kernels.View, src []byte) { q.transfer(enqueueWriteBuffer, dst, src) }
func (q *queue) Read(dst []byte, src kernels.View)  { q.transfer(enqueueReadBuffer, src, dst) }

// transfer enqueues a copy between a view and host memory, which is pinned until Sync.
func (q *queue) transfer(f function, v kernels.View, host []byte) {
	if q.err != nil {
		return
	}
	if q.err = q.checkTransfer(v, len(host)); q.err != nil || len(host) == 0 {
		return
	}
	memory := unsafe.SliceData(host)
	q.pins.Pin(memory)
	offset := uintptr(v.Off * v.Buf.DType().SizeBytes())
	s := q.dev.lib.call(f, q.handle, v.Buf.(*buffer).mem, 0, offset, uintptr(len(host)), uintptr(unsafe.Pointer(memory)), 0, 0, 0)
	q.err = s.err(f)
}

func (q *queue) checkTransfer(v kernels.View, bytes int) error {
	if err := v.CheckTransfer(bytes); err != nil {
		return fmt.Errorf("%s: %w", q.dev.Name(), err)
	}
	return q.dev.owns(v)
}

// Sync waits even after an error: a transfer may still be under way.
func (q *queue) Sync() error {
	s := q.dev.lib.call(finish, q.handle)
	q.pins.Unpin()
	if q.err == nil && s != success {
		q.err = fmt.Errorf("%s: %w", q.dev.Name(), s.err(finish))
	}
	if q.err == nil && q.checked {
		q.err = q.readFault()
		q.checked = false
	}
	return q.err
}

// readFault is the error of a kernel that met a bad index.
func (q *queue) readFault() error {
	const blocking = 1
	s := q.dev.lib.call(enqueueReadBuffer, q.handle, q.fault, blocking, 0, unsafe.Sizeof(q.faultRead), uintptr(unsafe.Pointer(&q.faultRead)), 0, 0, 0)
	if s != success {
		return s.err(enqueueReadBuffer)
	}
	if q.faultRead == 0 {
		return nil
	}
	return gpu.FaultError(kernels.Op(q.faultRead))
}

// Close waits like Sync and gives back what the queue holds.
func (q *queue) Close() error {
	err := q.Sync()
	for _, r := range []resource{{releaseMemObject, q.scratch}, {releaseMemObject, q.fault}, {releaseCommandQueue, q.handle}} {
		if released := q.dev.lib.release(r); err == nil {
			err = released
		}
	}
	return err
}
