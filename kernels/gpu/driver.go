package gpu

import (
	"errors"
	"time"
)

// ErrClosed says that a device was used after it was closed.
var ErrClosed = errors.New("gpu: device is closed")

// Memory is device memory by the name that its driver has for it; 0 is none.
type Memory uintptr

// Mark is a place on a stream by the name that its driver has for it; 0 is none.
type Mark uintptr

// Marker is the part of a driver about marks that were recorded.
type Marker interface {
	// Reach waits on the host until the device has come to a mark.
	Reach(m Mark) error
	// Between is the device's time from one mark to another, which it has come to; ok is false
	// where it tells none.
	Between(from, to Mark) (d time.Duration, ok bool)
	// Drop gives a mark back.
	Drop(m Mark) error
}

// Driver is a device as a backend drives it. Its methods may be called from any goroutine.
type Driver interface {
	// Name is unique on a node: `opencl:0`.
	Name() string
	// Alloc gives cleared memory of at least one byte; an error wraps kernels.ErrOutOfMemory
	// where there is not enough. Taking it for real is part of the call.
	Alloc(bytes int) (Memory, error)
	// Free gives memory back; what is enqueued may still use it.
	Free(m Memory) error
	// Peek copies from memory beside all streams, and waits for the copy.
	Peek(to []byte, from Memory) error
	NewStream() (Stream, error)
	Marker
	// Close gives back what the driver holds of the device; what is used later says ErrClosed.
	Close() error
}

// Stream executes in order what it is given; its methods need not wait for it. One goroutine at
// a time. It keeps no error: after one it is not used again but for Sync and Close.
type Stream interface {
	// Prepare takes what launches need besides memory of theirs, if there is room: a later
	// Execute of them finds it.
	Prepare(launches []Launch) error
	// Execute enqueues launches whose parameters are resolved, or keeps them until any other method
	// but Prepare is called.
	Execute(launches []Launch) error
	// Write and Read copy between memory, from byte `at` on, and host memory, which is left
	// alone until Sync.
	Write(to Memory, at int, from []byte) error
	Read(to []byte, from Memory, at int) error
	// Record enqueues a mark: one to use again, which nothing waits for any more, or for 0 a new
	// one. What it gives is to be dropped in the end, after an error too unless it is 0.
	Record(used Mark) (Mark, error)
	// Await lets what is enqueued later begin behind a mark of any stream of the driver.
	Await(m Mark) error
	// Sync waits for everything, also after an error.
	Sync() error
	// Close gives the stream back; nothing is under way.
	Close() error
}
