package model

import (
	"fmt"

	"pnode/kernels"
)

// Shadow returns a stack whose passes are Forward and Loss of the same layers with F32 storage. It
// reads Params as they are and computes the bits that a stack made with F32 storage computes. It has
// one slot, in memory that s uses only while its own slots are in flight. It is not to be closed and
// holds until s is resized or closed. A stack with F32 storage is its own shadow.
//
// The error wraps kernels.ErrOutOfMemory where that memory is in pieces too small for it, or
// kernels.ErrUnsupported.
func (s *Stack) Shadow() (*Stack, error) {
	if s.cfg.Storage == StorageF32 {
		return s, nil
	}
	cfg := s.cfg
	cfg.Storage, cfg.ForwardOnly = StorageF32, true
	cfg.Slots, cfg.SplitBackward, cfg.Segments = 1, false, 0
	cfg.Recompute, cfg.Ahead = RecomputeBlock.Uniform(cfg.End-cfg.First), 0
	cfg.Moments, cfg.Shares, cfg.Offload, cfg.Host = 0, nil, false, nil
	state := State{cfg: cfg, params: s.params, grads: make([]kernels.View, len(s.params))}
	t := &Stack{State: state, mem: newMemory(nil, cfg.Storage.half())}
	// Tokens and the residual stream take the places of the first slot, a layer's pass any room left.
	t.mem.saved, t.mem.layer = again(&s.mem.saved), again(&s.mem.layer, &s.mem.deltas, &s.mem.ahead)
	t.mem.ids, t.mem.tables = again(&s.mem.ids), again(&s.mem.tables) // the tables are the same
	t.open()
	for _, a := range t.mem.passing() {
		if a.short {
			return nil, fmt.Errorf("model: layers %s in float32: %s: %w", cfg.layers(), a.what, kernels.ErrOutOfMemory)
		}
	}
	if cfg.Device == nil { // of a stack that was only measured
		return t, nil
	}
	if err := t.supported(); err != nil {
		return nil, t.identify(err)
	}
	return t, nil
}
