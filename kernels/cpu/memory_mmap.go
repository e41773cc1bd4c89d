//go:build linux || darwin

package cpu

import (
	"fmt"
	"syscall"
	"unsafe"

	"pnode/kernels"
)

// allocFloats maps zeroed pages. Pages are aligned to at least 4096 bytes.
func allocFloats(n int) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	if n > 1<<46 {
		return nil, fmt.Errorf("%w: cpu: %d floats", kernels.ErrOutOfMemory, n)
	}
	mem, err := syscall.Mmap(-1, 0, 4*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("%w: cpu: map %d bytes: %w", kernels.ErrOutOfMemory, 4*n, err)
	}
	adviseHugePages(mem)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

// freeFloats unmaps what allocFloats gave.
func freeFloats(x []float32) {
	if len(x) == 0 {
		return
	}
	if err := syscall.Munmap(kernels.Float32Bytes(x)); err != nil {
		panic(fmt.Sprintf("cpu: unmap %d bytes: %v", 4*len(x), err)) // not a slice of allocFloats
	}
}
