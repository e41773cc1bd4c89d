package gpu

import "errors"

// ErrClosed says that a device was used after it was closed.
var ErrClosed = errors.New("gpu: device is closed")

// Memory is device memory by the name that its driver has for it; 0 is none.
type Memory uintptr

// Driver is a device as a backend drives it. Its methods may be called from any goroutine.
type Driver interface {
	// Name is unique on a node: `opencl:0`.
	Name() string
	// Alloc gives cleared memory of at least one byte; an error wraps kernels.ErrOutOfMemory
	// where there is not enough. Taking it for real is part of the call.
	Alloc(bytes int) (Memory, error)
	// Free gives memory back; what is enqueued may still use it.
	Free(m Memory) error
	NewStream() (Stream, error)
	// Close gives back what the driver holds of the device; what is used later says ErrClosed.
	Close() error
}

// Stream executes in order what it is given; its methods need not wait for it. One goroutine at
// a time. It keeps no error: after one it is not used again but for Sync and Close.
type Stream interface {
	// Execute enqueues launches whose parameters are resolved.
	Execute(launches []Launch) error
	// Write and Read copy between memory, from byte `at` on, and host memory, which is left
	// alone until Sync.
	Write(to Memory, at int, from []byte) error
	Read(to []byte, from Memory, at int) error
	// Sync waits for everything, also after an error.
	Sync() error
	// Close gives the stream back; nothing is under way.
	Close() error
}
