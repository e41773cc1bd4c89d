package model

import (
	"errors"
	"fmt"
	"strconv"

	"pnode/kernels"
)

// Stack is a contiguous range of layers on one device: the State that training keeps of them, and
// Slots for the micro-batches in flight, all allocated by NewStack. Its methods enqueue on the
// caller's queue and never wait; errors come out at the queue's Sync.
type Stack struct {
	State
	mem      memory
	all      stretch // what a pass over whole sequences takes
	rotary   rotary
	starts   kernels.View
	slots    []Slot
	restored *int // the slot that Restore was for, -1: none
	tookOver map[int]bool
}

// NewStack allocates a stack with parameters and gradients zero, but for parameters that it takes over. The error wraps
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
	s.tookOver = s.mem.takeOver(cfg)
	cfg.From = nil // they may be closed
	if err := s.mem.bind(cfg.Device, cfg.Host); err != nil {
		return nil, s.identify(err)
	}
	s.build(cfg)
	if err := errors.Join(s.supported(), s.writeConstants()); err != nil {
		s.Close()
		return nil, s.identify(err)
	}
	return s, nil
}

// identify adds the stack's layers and device to an error.
func (s *Stack) identify(err error) error {
	c := s.cfg
	return fmt.Errorf("model: layers %s with %d slots in %v on %s: %w", c.layers(), c.Slots, c.Storage, c.Device.Name(), err)
}

// layers prints the first and the last layer of the stack, as plans do.
func (c StackConfig) layers() string {
	if c.End-c.First == 1 {
		return strconv.Itoa(c.First)
	}
	return fmt.Sprintf("%d-%d", c.First, c.End-1)
}

// Passes says for which passes a stack has room: so many micro-batches in flight, with a split backward
// or not, by segments or not, and so many partial sums of gradients. See StackConfig.
type Passes struct {
	Slots, Segments, Partials int
	Split                     bool
}

// Resize replaces the stack's slots and partial sums by those for other passes. Parameters, gradients and moments
// stay as they are; no queue may have calls pending but those that read parameters and moments.
// After an error the stack has lost its slots: Close it.
func (s *Stack) Resize(to Passes) error {
	if to == (Passes{Slots: s.cfg.Slots, Segments: s.cfg.Segments, Partials: s.cfg.Partials, Split: s.cfg.SplitBackward}) {
		return nil
	}
	cfg := s.cfg
	cfg.Slots, cfg.Segments, cfg.Partials, cfg.SplitBackward = to.Slots, to.Segments, to.Partials, to.Split
	if err := cfg.validate(); err != nil {
		return err
	}
	if err := s.mem.replace(measured(cfg).mem, cfg.Device); err != nil {
		return s.identify(err)
	}
	s.build(cfg)
	return errors.Join(s.supported(), s.writeConstants())
}

// measured returns a stack bound to sizes only: it has no memory.
func measured(cfg StackConfig) *Stack {
	s := &Stack{mem: newMemory(cfg.Device, cfg.Storage.half())}
	s.build(cfg)
	return s
}

// build binds state and slots to memory.
func (s *Stack) build(cfg StackConfig) {
	s.State = newState(cfg, &s.mem)
	s.open()
}

// open binds all slots to memory.
func (s *Stack) open() {
	b := newBuilder(s.cfg, &s.mem)
	s.rotary, s.starts, s.restored, s.all, s.slots = b.rotary, b.starts, b.ahead, b.whole(), nil
	for i := range s.cfg.Slots {
		s.slots = append(s.slots, b.slot(&s.State, i))
	}
}

// writeConstants fills what depends on positions alone.
func (s *Stack) writeConstants() error {
	m := s.cfg.Model.resolved()
	if err := writeTables(s.cfg.Device, m, s.rotary); err != nil || !m.slides(m.Context) || s.Masked() {
		return err
	}
	return writeOnce(s.cfg.Device, func(q kernels.Queue) {
		var starts []int32
		for i := range s.cfg.MicroBatch * m.Context {
			starts = append(starts, m.windowStart(i%m.Context))
		}
		q.Write(s.starts, kernels.Int32Bytes(starts))
	})
}

// writeOnce waits for what f writes through a queue of its own.
func writeOnce(d kernels.Device, f func(kernels.Queue)) error {
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	f(q)
	return errors.Join(q.Sync(), q.Close())
}

// Slot returns slot i of [0,Slots); another one is a broken invariant and panics. It holds until the
// stack is resized or closed.
func (s *Stack) Slot(i int) *Slot {
	if i < 0 || i >= len(s.slots) {
		panic(fmt.Sprintf("model: slot %d of %d", i, len(s.slots)))
	}
	return &s.slots[i]
}

// Rows returns the rows of a segment in a boundary tensor [B,T,C]: one view of all, or a view for
// each sequence.
func (s *Stack) Rows(v kernels.View, g Segment) (rows []kernels.View) {
	s.Slot(0).stretch(g).each(func(part span) { rows = append(rows, part.of(v)) })
	return rows
}

// Masked reports whether each Forward needs Slot.SetDocuments first: the stack has attention that
// StackConfig.DocumentMask keeps within documents.
func (s *Stack) Masked() bool { return s.cfg.masked() }

// LogitRows returns how many rows of logits a stack with the head computes at a time.
func (s *Stack) LogitRows() int { return s.Slot(0).mustHead().chunk }

// ZeroGrads enqueues setting the gradients of all layers to zero.
func (s *Stack) ZeroGrads(q kernels.Queue) {
	for _, r := range s.mem.grads.regions {
		if r.buf != nil { // else all is frozen
			q.Do(kernels.Fill(kernels.Whole(r.buf), r.peak, 0))
		}
	}
}

// Close frees the device memory; no queue may have calls pending on it.
func (s *Stack) Close() { s.mem.free() }
