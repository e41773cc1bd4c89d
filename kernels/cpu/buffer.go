package cpu

import (
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/host"
)

// buffer is memory outside the Go heap; the other types share the floats' representation.
type buffer struct {
	dev   *Device
	dtype kernels.DType
	count int
	mem   []float32
	freed bool
}

func (b *buffer) DType() kernels.DType { return b.dtype }
func (b *buffer) Len() int             { return b.count }

// Floats makes it a kernels.HostVisible.
func (b *buffer) Floats(off, n int) []float32 {
	b.used()
	return b.mem[off : off+n : off+n]
}

// Free gives the memory back. A second Free does nothing.
func (b *buffer) Free() {
	b.ends()
	if !b.freed {
		b.freed = true
		b.dev.Give(4 * int64(len(b.mem)))
		host.Unmap(b.mem)
		b.mem = nil
	}
}

// floats is the memory of a checked view, nil for an absent one.
func floats(v kernels.View) []float32 {
	if !v.Present() {
		return nil
	}
	return v.Buf.(*buffer).mem[v.Off : v.Off+v.Len : v.Off+v.Len]
}

// ints is the memory of a checked view of an I32 buffer.
func ints(v kernels.View) []int32 {
	f := floats(v)
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(f))), len(f))
}

// halves is the memory of a checked view of a buffer of BF16 or F16.
func halves(v kernels.View) []uint16 {
	mem := v.Buf.(*buffer).mem
	all := unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(mem))), 2*len(mem))
	return all[v.Off : v.Off+v.Len : v.Off+v.Len]
}

// stored are the elements of an operand as they are in memory: float32, or a half.
type stored struct {
	wide []float32
	half []uint16
	conversion
}

// elements is the memory of a checked view of floats, whichever they are.
func (v *variant) elements(of kernels.View) stored {
	if of.Present() && of.Buf.DType().Half() {
		return stored{half: halves(of), conversion: v.conversion(of.Buf.DType())}
	}
	return stored{wide: floats(of)}
}

// from is all from element n on.
func (s stored) from(n int) stored {
	if s.half != nil {
		s.half = s.half[n:]
	} else {
		s.wide = s.wide[n:]
	}
	return s
}

// hostBytes is the memory of a checked view as it is stored.
func hostBytes(v kernels.View) []byte {
	size := v.Buf.DType().SizeBytes()
	return kernels.Float32Bytes(v.Buf.(*buffer).mem)[v.Off*size : (v.Off+v.Len)*size]
}
