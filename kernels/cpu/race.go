//go:build race

package cpu

import (
	"runtime"
	"unsafe"
)

// Most tests under the race detector have it look past this package, whose arithmetic on memory outside of the Go heap it cannot follow
// and makes several times as slow. What goroutines of other packages share with it is told here all the same.

// used tells that a queue is used, by one goroutine at a time.
func (q *queue) used() { runtime.RaceWrite(unsafe.Pointer(&q.err)) }

// used tells that a buffer is used.
func (b *buffer) used() { runtime.RaceRead(unsafe.Pointer(&b.freed)) }

// ends tells that a buffer is freed.
func (b *buffer) ends() { runtime.RaceWrite(unsafe.Pointer(&b.freed)) }

// reads tells that bytes of the program are copied to the device.
func reads(src []byte) {
	if len(src) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&src[0]), len(src))
	}
}

// writes tells that bytes of the program are overwritten.
func writes(dst []byte) {
	if len(dst) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&dst[0]), len(dst))
	}
}
