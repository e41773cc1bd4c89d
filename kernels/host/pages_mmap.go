//go:build linux || darwin

package host

import (
	"fmt"
	"syscall"
	"unsafe"

	"pnode/kernels"
)

// take gives n zeroed floats in pages of their own.
func take(n int) ([]float32, error) {
	mem, err := syscall.Mmap(-1, 0, 4*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("%w: host: map %d bytes: %w", kernels.ErrOutOfMemory, 4*n, err)
	}
	adviseHugePages(mem)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

// Unmap gives back what Map gave.
func Unmap(x []float32) {
	if len(x) == 0 {
		return
	}
	if err := syscall.Munmap(kernels.Float32Bytes(x)); err != nil {
		panic(fmt.Sprintf("host: unmap %d bytes: %v", 4*len(x), err)) // not a slice of Map
	}
}
