package opencl

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"pnode/kernels/gpu"
)

// driver is an OpenCL device as a gpu.Driver. Memory is a buffer object of OpenCL.
type driver struct {
	Info

	context, fills uintptr // fills: the command queue that clears new buffers

	mu      sync.Mutex // guards all below, and a kernel's arguments until it is enqueued
	program program
	closed  bool
}

func (d *driver) commandQueue() (uintptr, error) {
	var s status
	handle := d.lib.create(createCommandQueue, d.context, d.id, 0, uintptr(unsafe.Pointer(&s)))
	return handle, s.err(createCommandQueue)
}

// Name is `opencl:0` and so on.
func (d *driver) Name() string { return fmt.Sprintf("opencl:%d", d.Index) }

// Alloc gives cleared memory. Clearing makes drivers really take what they give out, so that
// a lack of it shows here and not in a later call.
func (d *driver) Alloc(bytes int) (gpu.Memory, error) {
	const readWrite = 1
	var s status
	mem := d.lib.create(createBuffer, d.context, readWrite, uintptr(bytes), 0, uintptr(unsafe.Pointer(&s)))
	if s != success {
		return 0, s.memoryErr(createBuffer)
	}
	if err := d.clear(mem, uintptr(bytes)); err != nil {
		d.lib.call(releaseMemObject, mem)
		return 0, err
	}
	return gpu.Memory(mem), nil
}

func (d *driver) clear(mem, size uintptr) error {
	var zero uint8
	s := d.lib.call(enqueueFillBuffer, d.fills, mem, uintptr(unsafe.Pointer(&zero)), unsafe.Sizeof(zero), 0, size, 0, 0, 0)
	if s != success {
		return s.memoryErr(enqueueFillBuffer)
	}
	return d.lib.call(finish, d.fills).memoryErr(finish)
}

// Free gives memory back. Launches that are enqueued keep it.
func (d *driver) Free(m gpu.Memory) error {
	return d.lib.release(releaseMemObject, uintptr(m))
}

// Close gives back what start made. OpenCL keeps what streams and memory need until they go.
func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.program.release()
	return errors.Join(d.lib.release(releaseCommandQueue, d.fills), d.lib.release(releaseContext, d.context))
}

// release gives a handle back, unless it is 0 and was never made.
func (l *library) release(by function, handle uintptr) error {
	if handle == 0 {
		return nil
	}
	return l.call(by, handle).err(by)
}
