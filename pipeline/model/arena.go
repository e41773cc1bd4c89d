package model

import (
	"fmt"

	"pnode/kernels"
)

// arena hands out views of one buffer. Before the buffer exists the views name no memory,
// so that one and the same code first measures and then binds.
type arena struct {
	what  string // for errors: `activations`
	dtype kernels.DType
	buf   kernels.Buffer
	used  int
	peak  int // most elements that were used at a time
}

// arenaAlign is in bytes: a cache line and the widest vector.
const arenaAlign = 64

// arenaMax elements is more than any device has; sums saturate there.
const arenaMax = 1 << 46

// take gives the next n elements, and the one after it an aligned place.
func (a *arena) take(n int) kernels.View {
	v := kernels.View{Buf: a.buf, Off: a.used, Len: n}
	align := arenaAlign / a.dtype.SizeBytes()
	a.used = min((a.used+n+align-1)/align*align, arenaMax)
	a.peak = max(a.peak, a.used)
	return v
}

// takePacked gives the next n elements and lets the next view begin right behind them.
func (a *arena) takePacked(n int) kernels.View {
	v := kernels.View{Buf: a.buf, Off: a.used, Len: n}
	a.used = min(a.used+n, arenaMax)
	return v
}

// rewind gives up everything taken: later views share its memory.
func (a *arena) rewind() { a.used = 0 }

// usedBytes is the size of everything taken.
func (a *arena) usedBytes() int64 { return int64(a.used) * int64(a.dtype.SizeBytes()) }

// sizeBytes is what bind allocates.
func (a *arena) sizeBytes() int64 { return int64(a.peak) * int64(a.dtype.SizeBytes()) }

// bind allocates what was measured and starts over.
func (a *arena) bind(d kernels.Device) error {
	if a.peak == 0 {
		return nil
	}
	if a.peak == arenaMax {
		return fmt.Errorf("%s need more than %d bytes: %w", a.what, a.sizeBytes(), kernels.ErrOutOfMemory)
	}
	buf, err := d.Alloc(a.dtype, a.peak)
	if err != nil {
		return fmt.Errorf("%s need %d bytes: %w", a.what, a.sizeBytes(), err)
	}
	a.buf, a.used = buf, 0
	return nil
}

func (a *arena) free() {
	if a.buf != nil {
		a.buf.Free()
		a.buf = nil
	}
}
