package opencl

import (
	"fmt"
	"unsafe"

	"pnode/kernels"
)

// buffer is memory of a device.
type buffer struct {
	dev   *Device
	dtype kernels.DType
	count int
	mem   uintptr // 0 once freed
}

func (b *buffer) DType() kernels.DType { return b.dtype }
func (b *buffer) Len() int             { return b.count }

// Free gives the memory back. A second Free does nothing.
func (b *buffer) Free() {
	if b.mem != 0 {
		b.dev.lib.call(releaseMemObject, b.mem)
		b.mem = 0
	}
}

// owns refuses operands that are no live buffers of d.
func (d *Device) owns(v kernels.View) error {
	b, ok := v.Buf.(*buffer)
	switch {
	case !ok || b.dev != d:
		return fmt.Errorf("%w: opencl: operand of another device", kernels.ErrBadCall)
	case b.mem == 0:
		return fmt.Errorf("%w: opencl: operand was freed", kernels.ErrBadCall)
	}
	return nil
}

// memory gives cleared memory. Clearing makes drivers really take what they give out, so that
// a lack of it shows here and not in a later call.
func (d *Device) memory(bytes int) (uintptr, error) {
	const readWrite = 1
	size := uintptr(max(bytes, 4)) // OpenCL has no empty buffers
	var s status
	mem := d.lib.create(createBuffer, d.context, readWrite, size, 0, uintptr(unsafe.Pointer(&s)))
	if s != success {
		return 0, s.memoryErr(createBuffer)
	}
	if err := d.clear(mem, size); err != nil {
		d.lib.call(releaseMemObject, mem)
		return 0, err
	}
	return mem, nil
}

func (d *Device) clear(mem, size uintptr) error {
	var zero uint8
	s := d.lib.call(enqueueFillBuffer, d.fills, mem, uintptr(unsafe.Pointer(&zero)), unsafe.Sizeof(zero), 0, size, 0, 0, 0)
	if s != success {
		return s.memoryErr(enqueueFillBuffer)
	}
	return d.lib.call(finish, d.fills).memoryErr(finish)
}

// memoryErr is err where memory was asked for: there a lack of resources is one of memory.
func (s status) memoryErr(f function) error {
	if s == outOfResources {
		return fmt.Errorf("%w: opencl: %v: %v", kernels.ErrOutOfMemory, f, s)
	}
	return s.err(f)
}
