package kernels

import "errors"

// Sentinel errors; backends wrap them with the operation and its sizes.
var (
	// ErrUnsupported says that a backend has no kernel for a call.
	ErrUnsupported = errors.New("kernels: unsupported call")
	// ErrOutOfMemory says that a device cannot give a buffer of the asked size.
	ErrOutOfMemory = errors.New("kernels: out of device memory")
	// ErrBadCall says that a call's operands do not fit its dimensions.
	ErrBadCall = errors.New("kernels: bad call")
	// ErrLost says that a device stopped working; nothing of it can be used any more.
	ErrLost = errors.New("kernels: device lost")
)

// DType is the storage type of a buffer's elements. The zero value is invalid.
type DType uint8

// Storage types. Arithmetic on the halves BF16 and F16 happens in float32.
const (
	_ DType = iota
	F32
	BF16
	I32
	// F16 is IEEE 754's binary16. What is finite and beyond MaxF16 is stored as MaxF16 of its sign:
	// an element is clipped, where infinity would cost the whole step.
	F16
)

// MaxF16 is the largest finite number of F16.
const MaxF16 = 65504

// Half reports whether it is a type of floats with 16 bits.
func (d DType) Half() bool { return d == BF16 || d == F16 }

// SizeBytes is the size of one element in bytes; it panics on an invalid type.
func (d DType) SizeBytes() int {
	switch d {
	case F32, I32:
		return 4
	case BF16, F16:
		return 2
	default:
		panic("kernels: invalid DType")
	}
}

func (d DType) String() string {
	names := [...]string{"invalid", F32: "f32", BF16: "bf16", I32: "i32", F16: "f16"}
	if int(d) >= len(names) {
		d = 0
	}
	return names[d]
}

// Device makes buffers and queues. Its methods may be called from any goroutine.
type Device interface {
	// Name is unique on a node: `cpu`, `cuda:0`.
	Name() string
	// Alloc gives a zeroed buffer of count elements, or ErrOutOfMemory.
	Alloc(dtype DType, count int) (Buffer, error)
	// Supports says before anything runs whether a call of this form can be
	// executed: nil, or an error that wraps ErrUnsupported or ErrBadCall.
	Supports(c Call) error
	NewQueue() (Queue, error)
	Close() error
}

// Buffer is memory of one device. Free gives it back; a queue must not have calls
// pending on it.
type Buffer interface {
	DType() DType
	// Len is the number of elements.
	Len() int
	Free()
}

// Queue executes in order what it is given. Its methods only enqueue; the first
// error sticks, later calls do nothing, and Sync returns it. One goroutine at a time.
// Queues of a device have no order among each other but by events.
type Queue interface {
	Do(c Call)
	// Write copies host bytes (little endian, len(src) = view bytes) to the device.
	// src must stay unchanged until Sync.
	Write(dst View, src []byte)
	// Read copies a view to host memory; dst is valid after Sync.
	Read(dst []byte, src View)
	// Record gives the event that comes after everything enqueued so far.
	Record() Event
	// Wait lets what is enqueued later begin only after an event of a queue of the same
	// device. The error of a queue that had one when it recorded the event sticks here too.
	Wait(e Event)
	// Sync waits for everything enqueued and returns the sticky error.
	Sync() error
	Close() error
}

// View is a range of a buffer's elements. The zero View stands for an absent operand.
type View struct {
	Buf Buffer
	Off int // first element
	Len int // elements
}

// Whole is the view of all of b.
func Whole(b Buffer) View { return View{Buf: b, Len: b.Len()} }

// Slice is the sub-view of n elements from element off on. It panics when the range
// is not inside v.
func (v View) Slice(off, n int) View {
	if off < 0 || n < 0 || off > v.Len || n > v.Len-off {
		panic("kernels: View.Slice out of range")
	}
	return View{Buf: v.Buf, Off: v.Off + off, Len: n}
}

// Present reports whether the view names memory at all.
func (v View) Present() bool { return v.Buf != nil }
