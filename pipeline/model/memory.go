package model

import (
	"fmt"
	"slices"

	"pnode/kernels"
	"pnode/kernels/host"
)

// Memory has the bytes that a stack allocates, by kind: all but Host on its device.
type Memory struct {
	Params int64
	Copies int64 // of the parameters in halves
	Grads  int64
	// Partials are sums of gradients that wait for others.
	Partials int64
	Moments  int64 // optimizer state
	Windows  int64 // of the device to optimizer state that the host has
	Scratch  int64 // of an update
	Previous int64 // the state before an update that may be undone
	Saved    int64 // activations from forward to backward, of all slots
	Deltas   int64 // activation gradients that outlive their layer's pass
	Layer    int64 // what one layer's pass needs at most: all layers and slots share it
	Ahead    int64 // what the last layers compute again before their gradient is there
	Tokens   int64 // tokens and targets
	Tables   int64 // of rotary positions
	Host     int64 // optimizer state in the memory of the host
}

// Total is the sum of all kinds on the device.
func (m Memory) Total() int64 {
	return m.Params + m.Copies + m.Grads + m.Partials + m.Moments + m.Windows + m.Scratch + m.Previous + m.Saved + m.Deltas + m.Layer + m.Ahead + m.Tokens + m.Tables
}

// Memory returns exactly what NewStack would allocate beyond what it takes over; it needs no device, unless that has a largest
// size of buffers. The error wraps
// ErrBadConfig.
func (c StackConfig) Memory() (Memory, error) {
	if err := c.validate(); err != nil {
		return Memory{}, err
	}
	m := &measured(c).mem
	_, pairs := m.takenOver(c)
	for _, p := range pairs { // the memory is there
		p.to.peak = 0
	}
	return Memory{
		Params: m.params.sizeBytes(), Copies: m.copies.sizeBytes(), Grads: m.grads.sizeBytes(), Partials: m.partials.sizeBytes(),
		Moments: m.moments.sizeBytes(), Windows: m.windows.sizeBytes(), Scratch: m.scratch.sizeBytes(), Previous: m.previous.sizeBytes(), Host: m.hosted.sizeBytes(),
		Saved: m.saved.sizeBytes() + m.savedHalves.sizeBytes(), Deltas: m.deltas.sizeBytes(),
		Layer: m.layer.sizeBytes() + m.layerHalves.sizeBytes(), Ahead: m.ahead.sizeBytes() + m.aheadHalves.sizeBytes(),
		Tokens: m.ids.sizeBytes(), Tables: m.tables.sizeBytes(),
	}, nil
}

// memory is a stack's allocations, one of each kind.
type memory struct {
	params, copies, int8, grads, partials, moments, windows, scratch, previous, hosted, saved, savedHalves, deltas, layer, layerHalves, ahead, aheadHalves, ids, tables arena
}

// newMemory returns arenas for a stack on a device, which may be nil, with halves of a type.
func newMemory(d kernels.Device, half kernels.DType) memory {
	m := memory{
		params:      arena{what: "parameters", dtype: kernels.F32, apart: true},
		copies:      arena{what: fmt.Sprintf("%v copies of parameters", half), dtype: half},
		int8:        arena{what: "int8 weights", dtype: kernels.I32},
		grads:       arena{what: "gradients", dtype: kernels.F32},
		partials:    arena{what: "partial sums of gradients", dtype: kernels.F32},
		moments:     arena{what: "optimizer moments", dtype: kernels.F32, apart: true},
		windows:     arena{what: "windows to optimizer moments", dtype: kernels.F32},
		scratch:     arena{what: "scratch of an update", dtype: kernels.F32},
		previous:    arena{what: "the state before an update", dtype: kernels.F32},
		hosted:      arena{what: "optimizer moments in host memory", dtype: kernels.F32, apart: true},
		saved:       arena{what: "saved activations", dtype: kernels.F32},
		savedHalves: arena{what: fmt.Sprintf("saved activations in %v", half), dtype: half},
		deltas:      arena{what: "activation gradients", dtype: kernels.F32},
		layer:       arena{what: "buffers of one layer's pass", dtype: kernels.F32},
		layerHalves: arena{what: fmt.Sprintf("%v buffers of one layer's pass", half), dtype: half},
		ahead:       arena{what: "activations computed again ahead", dtype: kernels.F32},
		aheadHalves: arena{what: fmt.Sprintf("%v activations computed again ahead", half), dtype: half},
		ids:         arena{what: "tokens", dtype: kernels.I32},
		tables:      arena{what: "tables of rotary positions", dtype: kernels.F32},
	}
	for _, a := range slices.Concat(m.lasting(), m.passing()) {
		if a != &m.hosted {
			a.limit(d)
		}
	}
	return m
}

// lasting returns the arenas that outlive a Resize, on the device and in host memory.
func (m *memory) lasting() []*arena {
	return []*arena{&m.params, &m.copies, &m.int8, &m.grads, &m.moments, &m.windows, &m.scratch, &m.previous, &m.hosted}
}

// passing returns the arenas of slots, passes and partial sums, which hold nothing between two steps.
func (m *memory) passing() []*arena {
	return []*arena{&m.partials, &m.saved, &m.savedHalves, &m.deltas, &m.layer, &m.layerHalves, &m.ahead, &m.aheadHalves, &m.ids, &m.tables}
}

// bind allocates all arenas or none.
func (m *memory) bind(d kernels.Device, h *host.Memory) error {
	for _, a := range slices.Concat(m.lasting(), m.passing()) {
		var from allocator = d
		if a == &m.hosted {
			from = h
		}
		if err := a.bind(from); err != nil {
			m.free()
			return err
		}
	}
	return nil
}

// replace frees the arenas that hold nothing between two steps and allocates them in the sizes of another stack,
// whose lasting memory becomes that of m. After an error there is less; free takes it.
func (m *memory) replace(other memory, d kernels.Device) error {
	for i, a := range other.lasting() {
		a.regions = m.lasting()[i].regions // the same was taken from them
		a.rewind()
	}
	for _, a := range m.passing() {
		a.free()
	}
	*m = other
	for _, a := range m.passing() {
		if err := a.bind(d); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) free() {
	for _, a := range slices.Concat(m.lasting(), m.passing()) {
		a.free()
	}
}

// slotBytes returns how much slots have taken so far to keep from forward to backward.
func (m *memory) slotBytes() int64 {
	return m.saved.usedBytes() + m.savedHalves.usedBytes() + m.ids.usedBytes()
}
