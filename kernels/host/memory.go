package host

import (
	"fmt"
	"math"

	"pnode/kernels"
)

// Memory gives buffers of the node's own memory, as long as its budget lasts. The zero value has
// no limit but the system's. Its methods may be called from any goroutine.
type Memory struct{ kernels.Budget }

// Alloc gives a zeroed buffer, or kernels.ErrOutOfMemory.
func (m *Memory) Alloc(dtype kernels.DType, count int) (kernels.Buffer, error) {
	if count < 0 || count > math.MaxInt/dtype.SizeBytes() {
		return nil, fmt.Errorf("%w: host: alloc of %d elements", kernels.ErrBadCall, count)
	}
	bytes := int64(count) * int64(dtype.SizeBytes())
	if err := m.Take(bytes); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	const floatBytes = 4
	pages, err := Map(int((bytes + floatBytes - 1) / floatBytes))
	if err != nil {
		m.Give(bytes)
		return nil, err
	}
	return &buffer{of: m, dtype: dtype, count: count, bytes: bytes, pages: pages}, nil
}

// Map gives n zeroed floats outside of the Go heap where the system can, aligned to at least 64 bytes. The
// error wraps kernels.ErrOutOfMemory.
func Map(n int) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	if n > 1<<46 {
		return nil, fmt.Errorf("%w: host: %d floats", kernels.ErrOutOfMemory, n)
	}
	return take(n)
}

// buffer is memory that the host sees and no device does.
type buffer struct {
	of    *Memory
	dtype kernels.DType
	count int
	bytes int64
	pages []float32
	freed bool
}

func (b *buffer) DType() kernels.DType { return b.dtype }
func (b *buffer) Len() int             { return b.count }

// Free gives the memory back. A second Free does nothing.
func (b *buffer) Free() {
	if !b.freed {
		b.freed = true
		Unmap(b.pages)
		b.pages = nil
		b.of.Give(b.bytes)
	}
}

// Bytes returns the bytes of a view of host memory; ok is false where the view is a device's.
func Bytes(v kernels.View) (bytes []byte, ok bool) {
	b, ok := v.Buf.(*buffer)
	if !ok {
		return nil, false
	}
	size := b.dtype.SizeBytes()
	return kernels.Float32Bytes(b.pages)[v.Off*size : (v.Off+v.Len)*size], true
}

// Read copies a view to dst, of a device's memory on the queue: dst is valid after its Sync.
func Read(q kernels.Queue, dst []byte, v kernels.View) {
	if bytes, ok := Bytes(v); ok {
		copy(dst, bytes)
		return
	}
	q.Read(dst, v)
}

// Write copies src to a view, in a device's memory on the queue: src must stay as it is until its
// Sync.
func Write(q kernels.Queue, v kernels.View, src []byte) {
	if bytes, ok := Bytes(v); ok {
		copy(bytes, src)
		return
	}
	q.Write(v, src)
}
