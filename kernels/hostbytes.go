package kernels

import "unsafe"

// Float32Bytes is the memory of x as bytes for Queue.Write and Queue.Read, without a
// copy. The contract's byte order is little endian, which is that of every platform the
// program is built for.
func Float32Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Int32Bytes is the memory of x as bytes, like Float32Bytes.
func Int32Bytes(x []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Blocks returns the whole blocks of 32 bytes at the start of b as little-endian words, without a copy. They may lie at any
// address. The race detector counts a word as one access, and one that is put together of bytes as nine.
func Blocks(b []byte) [][4]uint64 {
	if len(b) < 32 {
		return nil
	}
	return unsafe.Slice((*[4]uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/32)
}

// HostVisible is a Buffer in memory that the host sees as it is.
type HostVisible interface {
	// Floats are the n elements of an F32 buffer from off on; no call may be pending on them.
	Floats(off, n int) []float32
}

// FillFrom has from write the elements of an F32 view: in place where the host sees them, so that
// a model is not in memory twice while it is loaded. It waits for the queue.
func FillFrom(q Queue, dst View, from func(dst []float32) error) error {
	if err := q.Sync(); err != nil {
		return err
	}
	if b, ok := dst.Buf.(HostVisible); ok {
		return from(b.Floats(dst.Off, dst.Len))
	}
	host := make([]float32, dst.Len)
	if err := from(host); err != nil {
		return err
	}
	q.Write(dst, Float32Bytes(host))
	return q.Sync()
}
