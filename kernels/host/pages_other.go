//go:build !linux && !darwin

package host

import "unsafe"

const alignBytes = 64

// take gives n zeroed floats in heap memory.
func take(n int) ([]float32, error) {
	mem := make([]float32, n+alignBytes/4)
	skip := 0
	if rest := uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % alignBytes; rest != 0 {
		skip = int(alignBytes-rest) / 4
	}
	return mem[skip : skip+n : skip+n], nil
}

// Unmap leaves it to the garbage collector.
func Unmap([]float32) {}
