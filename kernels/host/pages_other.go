//go:build !linux && !darwin

package host

import (
	"fmt"
	"unsafe"

	"pnode/kernels"
)

const alignBytes = 64

// Map gives n zeroed floats, in heap memory aligned to 64 bytes.
func Map(n int) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	if n > 1<<46 {
		return nil, fmt.Errorf("%w: host: %d floats", kernels.ErrOutOfMemory, n)
	}
	mem := make([]float32, n+alignBytes/4)
	skip := 0
	if rest := uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % alignBytes; rest != 0 {
		skip = int(alignBytes-rest) / 4
	}
	return mem[skip : skip+n : skip+n], nil
}

// Unmap leaves it to the garbage collector.
func Unmap([]float32) {}
