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
}

// arenaAlign is in elements: 64 bytes, a cache line and the widest vector.
const arenaAlign = 16

// arenaMax elements is more than any device has; sums saturate there.
const arenaMax = 1 << 46

// take gives the next n elements.
func (a *arena) take(n int) kernels.View {
	v := kernels.View{Buf: a.buf, Off: a.used, Len: n}
	a.used = min(a.used+(n+arenaAlign-1)/arenaAlign*arenaAlign, arenaMax)
	return v
}

// bind allocates what was measured and starts over.
func (a *arena) bind(d kernels.Device) error {
	if a.used == 0 {
		return nil
	}
	bytes := int64(a.used) * int64(a.dtype.SizeBytes())
	if a.used == arenaMax {
		return fmt.Errorf("%s need more than %d bytes: %w", a.what, bytes, kernels.ErrOutOfMemory)
	}
	buf, err := d.Alloc(a.dtype, a.used)
	if err != nil {
		return fmt.Errorf("%s need %d bytes: %w", a.what, bytes, err)
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

// memory is a stack's five allocations, one of each kind.
type memory struct {
	params, grads, saved, deltas, ids arena
}

func newMemory() memory {
	return memory{
		params: arena{what: "parameters", dtype: kernels.F32},
		grads:  arena{what: "gradients", dtype: kernels.F32},
		saved:  arena{what: "saved activations", dtype: kernels.F32},
		deltas: arena{what: "activation gradients", dtype: kernels.F32},
		ids:    arena{what: "tokens", dtype: kernels.I32},
	}
}

func (m *memory) arenas() []*arena {
	return []*arena{&m.params, &m.grads, &m.saved, &m.deltas, &m.ids}
}

// bind allocates all arenas or none.
func (m *memory) bind(d kernels.Device) error {
	for _, a := range m.arenas() {
		if err := a.bind(d); err != nil {
			m.free()
			return err
		}
	}
	return nil
}

func (m *memory) free() {
	for _, a := range m.arenas() {
		a.free()
	}
}
