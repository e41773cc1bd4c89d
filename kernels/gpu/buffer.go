package gpu

import (
	"fmt"

	"pnode/kernels"
)

// buffer is memory of a device.
type buffer struct {
	dev    *Device
	dtype  kernels.DType
	count  int
	bytes  int
	memory Memory // 0 for none
}

func (b *buffer) DType() kernels.DType { return b.dtype }
func (b *buffer) Len() int             { return b.count }

// take gets cleared memory for the buffer; drivers have none that is empty.
func (b *buffer) take(bytes int) (err error) {
	size := max(bytes, 4)
	if err = b.dev.Take(int64(size)); err == nil {
		if b.memory, err = b.dev.driver.Alloc(size); err != nil {
			b.dev.Give(int64(size))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: alloc of %d bytes: %w", b.dev.Name(), bytes, err)
	}
	b.bytes = size
	return nil
}

// release gives the memory back; a second time does nothing.
func (b *buffer) release() error {
	if b.memory == 0 {
		return nil
	}
	memory := b.memory
	b.memory = 0
	b.dev.Give(int64(b.bytes))
	return b.dev.driver.Free(memory)
}

// Free gives the memory back; the driver's errors come out of queues. A second Free does nothing.
func (b *buffer) Free() { _ = b.release() }

// owns refuses operands that are no live buffers of d.
func (d *Device) owns(v kernels.View) error {
	b, ok := v.Buf.(*buffer)
	switch {
	case !ok || b.dev != d:
		return fmt.Errorf("%w: %s: operand of another device", kernels.ErrBadCall, d.Name())
	case b.memory == 0:
		return fmt.Errorf("%w: %s: operand was freed", kernels.ErrBadCall, d.Name())
	}
	return nil
}
