package kernels

import (
	"fmt"
	"math"
	"sync"
)

// Budget counts the memory that a device's buffers take, and refuses what goes beyond a limit.
// The zero value has none. Its methods may be called from any goroutine.
type Budget struct {
	mu         sync.Mutex // guards all below
	limit      int64      // 0 for none
	used, peak int64
}

// Limited is a Device whose buffers, and what its queues need besides, can be held to a limit.
type Limited interface {
	// LimitMemory makes it so many bytes; 0 is no limit. What is taken already stays.
	LimitMemory(bytes int64)
	// MemoryLeft is how many bytes may still be taken.
	MemoryLeft() int64
}

// Distant is a Device with memory to which copies from the host take a while, beside its calls.
type Distant interface{ Distant() bool }

// Portioned is a Device whose buffers have a largest size, of whatever memory there is.
type Portioned interface{ MaxBufferBytes() int64 }

// HalfMultiplier is a Device without memory of its own that may have instructions for products of halves.
type HalfMultiplier interface {
	// MultipliesHalves reports whether products of such operands are computed with instructions for them, rather than
	// in float32, which is no faster.
	MultipliesHalves(t DType) bool
}

// Kinded is a Device that knows its kind: devices of one kind compute the same bits, others may differ in the last digits.
type Kinded interface{ Kind() string }

// KindOf is the kind of a device, empty where it does not say.
func KindOf(d Device) string {
	if k, ok := d.(Kinded); ok {
		return k.Kind()
	}
	return ""
}

// Preparer is a Queue whose calls may need memory besides their operands.
type Preparer interface {
	// Prepare takes what the call needs now, so that a later Do of it finds it there.
	Prepare(c Call) error
}

// LimitMemory makes the limit so many bytes, 0 for none. What is taken already stays.
func (b *Budget) LimitMemory(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = bytes
}

// MemoryLeft is how many bytes may still be taken.
func (b *Budget) MemoryLeft() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left()
}

func (b *Budget) left() int64 {
	if b.limit == 0 {
		return math.MaxInt64 - b.used
	}
	return max(0, b.limit-b.used)
}

// Take counts bytes that are about to be taken, or gives an ErrOutOfMemory.
func (b *Budget) Take(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes > b.left() {
		return fmt.Errorf("%w: %d bytes are wanted, %d of %d that may be used are in use", ErrOutOfMemory, bytes, b.used, b.limit)
	}
	b.used += bytes
	b.peak = max(b.peak, b.used)
	return nil
}

// Give counts bytes that were given back.
func (b *Budget) Give(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
}

// PeakBytes is the most that was taken at one time.
func (b *Budget) PeakBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}
