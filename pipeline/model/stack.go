package model

import (
	"errors"
	"fmt"

	"pnode/kernels"
)

// Stack is a contiguous range of layers on one device: parameters, gradients, optimizer
// state and the activations of Slots micro-batches, all allocated by NewStack. Its methods enqueue on
// the caller's queue and never wait; errors come out at the queue's Sync. Layers are
// named by their global index. A slot outside [0,Slots), a layer the stack does not hold
// or a boundary it does not have is a broken invariant and panics.
type Stack struct {
	cfg           StackConfig
	mem           memory
	params, grads []kernels.View   // by local layer, [LayerLen] and [TrainedLen]
	copies        []kernels.View   // by local layer, [LayerLen] in halves; none with F32 storage
	moments       [][]kernels.View // by moment and local layer, [ShareLen]
	windows       [][]kernels.View // by number and moment
	all           stretch          // what a pass over whole sequences takes
	rotary        rotary
	starts        kernels.View
	slots         []slotState
	restored      *int // the slot that Restore was for, -1: none
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
	if cfg.Offload && cfg.Host == nil {
		return nil, fmt.Errorf("%w: host is nil: give the memory for offloaded optimizer state", ErrBadConfig)
	}
	s := measured(cfg)
	if err := s.mem.bind(cfg.Device, cfg.Host); err != nil {
		return nil, fmt.Errorf("model: layers [%d,%d) with %d slots on %s: %w", cfg.First, cfg.End, cfg.Slots, cfg.Device.Name(), err)
	}
	s.build()
	if err := errors.Join(s.supported(), s.writeConstants()); err != nil {
		s.Close()
		return nil, fmt.Errorf("model: layers [%d,%d) on %s: %w", cfg.First, cfg.End, cfg.Device.Name(), err)
	}
	return s, nil
}

// Passes are what a stack has slots for: so many micro-batches in flight, with a split backward
// or not, by segments or not. See StackConfig.
type Passes struct {
	Slots, Segments int
	Split           bool
}

// Resize gives the stack slots for other passes, in place of those that it has. Parameters,
// gradients and moments stay as they are; no queue may have calls pending but those that read
// parameters and moments. After an error the stack has lost its slots: Close it.
func (s *Stack) Resize(to Passes) error {
	if to == (Passes{Slots: s.cfg.Slots, Segments: s.cfg.Segments, Split: s.cfg.SplitBackward}) {
		return nil
	}
	cfg := s.cfg
	cfg.Slots, cfg.Segments, cfg.SplitBackward = to.Slots, to.Segments, to.Split
	if err := cfg.validate(); err != nil {
		return err
	}
	if err := s.mem.replace(measured(cfg).mem, cfg.Device); err != nil {
		return fmt.Errorf("model: layers [%d,%d) with %d slots on %s: %w", cfg.First, cfg.End, cfg.Slots, cfg.Device.Name(), err)
	}
	s.cfg = cfg
	s.build()
	return errors.Join(s.supported(), s.writeConstants())
}

// measured is a stack bound to sizes only: it has no memory.
func measured(cfg StackConfig) *Stack {
	s := &Stack{cfg: cfg, mem: newMemory(cfg.Device, cfg.Storage.half())}
	s.build()
	return s
}

// build binds parameters, gradients, moments and all slots to memory.
func (s *Stack) build() {
	m := s.cfg.Model
	tied := s.cfg.share(0).Of(Range{0, min(s.SharedTail(), m.TiedGradLen())})
	s.params = s.vectors(&s.mem.params, m.LayerLen, s.SharedTail())
	s.grads = s.vectors(&s.mem.grads, s.cfg.gradLen, 0)
	s.copies = nil
	if s.cfg.Storage != StorageF32 {
		s.copies = s.vectors(&s.mem.copies, m.LayerLen, s.SharedTail())
	}
	s.moments, s.slots = nil, nil
	kept := &s.mem.moments
	if s.cfg.Offload {
		kept = &s.mem.hosted
	}
	for range s.cfg.Moments {
		s.moments = append(s.moments, s.vectors(kept, s.shareLen, tied.Len()))
	}
	s.takeWindows(tied.Len())
	s.open()
}

// open binds all slots to memory.
func (s *Stack) open() {
	b := newBuilder(s.cfg, &s.mem)
	s.rotary, s.starts, s.restored, s.all = b.rotary, b.starts, b.ahead, b.whole()
	for range s.cfg.Slots {
		s.slots = append(s.slots, b.slot(s))
	}
}

// SharedTail is how many elements at the end of the head's vectors are the front of the
// embedding's: the tied matrix of a stack that holds both. Parameters and moments share
// memory there, which an optimizer must update once. Gradients do not: their sum has to
// have the same order on every cut.
func (s *Stack) SharedTail() int {
	if s.cfg.First > 0 || s.cfg.End < s.cfg.Model.Layers() {
		return 0
	}
	return s.cfg.Model.TiedLen()
}

// vectors takes a flat vector of length(layer) for each layer. The head's comes right before the
// embedding's, so that a shared tail is part of both.
func (s *Stack) vectors(a *arena, length func(layer int) int, shared int) []kernels.View {
	views := make([]kernels.View, s.cfg.End-s.cfg.First)
	order := make([]int, 0, len(views))
	for i := range views {
		order = append(order, (i+len(views)-1)%len(views))
	}
	for _, i := range order {
		n := length(s.cfg.First + i)
		if shared > 0 && i == len(views)-1 {
			own := a.takePacked(n-shared, length(s.cfg.First))
			views[i] = kernels.View{Buf: own.Buf, Off: own.Off, Len: n}
			continue
		}
		views[i] = a.take(n)
	}
	return views
}

// layerVectors are the parameters, their copies and gradients of local layer i.
func (s *Stack) layerVectors(resolved Config, i int) vectors {
	v := newVectors(resolved, s.cfg.First+i, s.params[i], s.grads[i])
	if s.copies != nil {
		v.copies = s.copies[i]
	}
	return v
}

// Params is a layer's flat parameter vector [LayerLen].
func (s *Stack) Params(layer int) kernels.View { return s.params[s.local(layer)] }

// Grads is a layer's flat gradient vector [TrainedLen], laid out like the end of Params;
// empty with ForwardOnly.
func (s *Stack) Grads(layer int) kernels.View { return s.grads[s.local(layer)] }

// Owned are the elements of a layer's gradient that the stack has moments of.
func (s *Stack) Owned(layer int) []Range {
	return s.cfg.Model.ShareRanges(layer, s.cfg.share(s.local(layer)))
}

func (s *Stack) shareLen(layer int) int {
	return s.cfg.Model.ShareLen(layer, s.cfg.share(s.local(layer)))
}

// Moment is vector i of a layer's optimizer state [ShareLen], for the Owned elements of
// Grads one behind the other and zero at first: on the device or, with Offload, in the host's
// memory, of which host.Read and host.Write make no difference.
func (s *Stack) Moment(layer, i int) kernels.View { return s.moments[i][s.local(layer)] }

func (s *Stack) local(layer int) int {
	if layer < s.cfg.First || layer >= s.cfg.End {
		panic(fmt.Sprintf("model: layer %d is not in [%d,%d)", layer, s.cfg.First, s.cfg.End))
	}
	return layer - s.cfg.First
}

// Close frees the device memory; no queue may have calls pending on it.
func (s *Stack) Close() { s.mem.free() }
