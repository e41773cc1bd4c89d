package kernels

import (
	"fmt"
	"unsafe"
)

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

// AsFloat32 is b as float32 values without a copy when b is aligned to 4 bytes, else a
// copy. It panics when len(b) is no multiple of 4.
func AsFloat32(b []byte) []float32 {
	if len(b)%4 != 0 {
		panic(fmt.Sprintf("kernels: AsFloat32 of %d bytes", len(b)))
	}
	if len(b) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%4 == 0 {
		return unsafe.Slice((*float32)(p), len(b)/4)
	}
	out := make([]float32, len(b)/4)
	copy(Float32Bytes(out), b)
	return out
}
