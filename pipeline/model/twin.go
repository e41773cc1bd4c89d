package model

import (
	"fmt"

	"pnode/kernels"
)

// Twin is a stack whose passes are Forward and Loss of the same layers with F32 storage: it reads
// Params as they are, and what it computes are the bits that a stack made with F32 storage
// computes. It has one slot, in memory of s that nothing of its own uses while none of its slots
// is in flight: it takes none, is not to be closed, and holds until s is resized or closed. A
// stack with F32 storage is its own twin.
//
// The error wraps kernels.ErrOutOfMemory where that memory is in pieces too small for it, or
// kernels.ErrUnsupported.
func (s *Stack) Twin() (*Stack, error) {
	if s.cfg.Storage == StorageF32 {
		return s, nil
	}
	cfg := s.cfg
	cfg.Storage, cfg.ForwardOnly = StorageF32, true
	cfg.Slots, cfg.SplitBackward, cfg.Segments = 1, false, 0
	cfg.Recompute, cfg.Ahead = RecomputeBlock.Uniform(cfg.End-cfg.First), 0
	cfg.Moments, cfg.Shares, cfg.Offload, cfg.Host = 0, nil, false, nil
	t := &Stack{cfg: cfg, mem: s.mem.idle(cfg.Storage), params: s.params, grads: make([]kernels.View, len(s.params))}
	t.open()
	for _, a := range t.mem.passing() {
		if a.short {
			return nil, fmt.Errorf("model: layers [%d,%d) in float32: %s: %w", cfg.First, cfg.End, a.what, kernels.ErrOutOfMemory)
		}
	}
	if cfg.Device == nil { // of a stack that was only measured
		return t, nil
	}
	if err := t.supported(); err != nil {
		return nil, fmt.Errorf("model: layers [%d,%d) in float32 on %s: %w", cfg.First, cfg.End, cfg.Device.Name(), err)
	}
	return t, nil
}

// idle is the memory between passes for another stack of the same layers: tokens and the residual
// stream in the places of the first slot, what a layer's pass takes wherever it finds room, and
// the tables, which are the same.
func (m *memory) idle(as Storage) memory {
	other := newMemory(nil, as.half())
	other.saved, other.layer = again(&m.saved), again(&m.layer, &m.deltas, &m.ahead)
	other.ids, other.tables = again(&m.ids), again(&m.tables)
	return other
}
