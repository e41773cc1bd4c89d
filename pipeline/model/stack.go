package model

import (
	"fmt"

	"pnode/kernels"
)

// StackConfig says which layers of which model a device holds and how many micro-batches
// may be in flight.
type StackConfig struct {
	Device     kernels.Device
	Model      Config
	First, End int // layers [First,End)
	MicroBatch int // sequences B of a micro-batch
	Slots      int // micro-batches in flight
	// SplitBackward allows BackwardInput and BackwardWeight at different times, at the
	// price of one more set of activation gradients per layer and slot.
	SplitBackward bool
}

// Upper bounds of a stack, see Config's.
const (
	maxMicroBatch = 1 << 12
	maxSlots      = 1 << 12
)

func (c StackConfig) validate() error {
	if err := c.Model.Validate(); err != nil {
		return err
	}
	m := c.Model
	if m.Resolved() != (Config{Vocab: m.Vocab, Context: m.Context, Blocks: m.Blocks, Heads: m.Heads, Channels: m.Channels}).Resolved() {
		return bad("the model is not GPT-2's family: no other has its layers here")
	}
	return checkAll(
		bounds[int]{"first layer", c.First, 0, m.Layers() - 1},
		bounds[int]{"end layer", c.End, c.First + 1, m.Layers()},
		bounds[int]{"micro-batch", c.MicroBatch, 1, maxMicroBatch},
		bounds[int]{"slots", c.Slots, 1, maxSlots},
	)
}

// Stack is a contiguous range of layers on one device: parameters, gradients and the
// activations of Slots micro-batches, all allocated by NewStack. Its methods enqueue on
// the caller's queue and never wait; errors come out at the queue's Sync. Layers are
// named by their global index. A slot outside [0,Slots), a layer the stack does not hold
// or a boundary it does not have is a broken invariant and panics.
type Stack struct {
	cfg           StackConfig
	mem           memory
	params, grads []kernels.View // by local layer, [LayerLen]
	slots         []slotState
}

// NewStack allocates a stack with parameters and gradients zero. The error wraps
// ErrBadConfig, kernels.ErrOutOfMemory, or kernels.ErrUnsupported when the device lacks
// a call that a step would make.
func NewStack(cfg StackConfig) (*Stack, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Device == nil {
		return nil, fmt.Errorf("%w: device is nil: give the one that holds the layers", ErrBadConfig)
	}
	s := &Stack{cfg: cfg, mem: newMemory()}
	s.build() // measures
	if err := s.mem.bind(cfg.Device); err != nil {
		return nil, fmt.Errorf("model: layers [%d,%d) with %d slots on %s: %w", cfg.First, cfg.End, cfg.Slots, cfg.Device.Name(), err)
	}
	s.build()
	if err := s.supported(); err != nil {
		s.Close()
		return nil, fmt.Errorf("model: layers [%d,%d) on %s: %w", cfg.First, cfg.End, cfg.Device.Name(), err)
	}
	return s, nil
}

// build binds parameters, gradients and all slots to memory.
func (s *Stack) build() {
	s.params, s.grads, s.slots = nil, nil, nil
	for l := s.cfg.First; l < s.cfg.End; l++ {
		n := s.cfg.Model.LayerLen(l)
		s.params = append(s.params, s.mem.params.take(n))
		s.grads = append(s.grads, s.mem.grads.take(n))
	}
	b := newBuilder(s.cfg, &s.mem)
	for range s.cfg.Slots {
		s.slots = append(s.slots, b.slot(s.cfg.First, s.cfg.End, s.params, s.grads))
	}
}

// supportCheck asks a device about calls and keeps the first refusal.
type supportCheck struct {
	device kernels.Device
	err    error
}

func (c *supportCheck) Do(call kernels.Call) {
	if c.err == nil {
		c.err = c.device.Supports(call)
	}
}

// supported asks the device about every call of a step; slots differ by offsets only.
func (s *Stack) supported() error {
	check := &supportCheck{device: s.cfg.Device}
	f := s.slots[0]
	for _, l := range f.layers {
		l.forward(check)
		l.backwardInput(check)
		l.backwardWeight(check)
	}
	if f.head != nil {
		f.head.loss(check, 1)
	}
	return check.err
}

// Params is a layer's flat parameter vector [LayerLen].
func (s *Stack) Params(layer int) kernels.View { return s.params[s.local(layer)] }

// Grads is a layer's flat gradient vector [LayerLen], laid out like Params.
func (s *Stack) Grads(layer int) kernels.View { return s.grads[s.local(layer)] }

func (s *Stack) local(layer int) int {
	if layer < s.cfg.First || layer >= s.cfg.End {
		panic(fmt.Sprintf("model: layer %d is not in [%d,%d)", layer, s.cfg.First, s.cfg.End))
	}
	return layer - s.cfg.First
}

// Close frees the device memory; no queue may have calls pending on it.
func (s *Stack) Close() { s.mem.free() }
