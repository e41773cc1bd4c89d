package model

import (
	"errors"
	"fmt"

	"pnode/kernels"
	"pnode/kernels/host"
)

// StackConfig says which layers of which model a device holds and how many micro-batches
// may be in flight.
type StackConfig struct {
	Device     kernels.Device
	Model      Config
	First, End int // layers [First,End)
	MicroBatch int // sequences B of a micro-batch
	Slots      int // micro-batches in flight
	// SplitBackward allows BackwardInputSegment and BackwardWeight at different times, at the
	// price of one more set of activation gradients per layer and slot.
	SplitBackward bool
	// Segments is into how many the passes cut sequences, 0 and 1 for whole ones: see Segment.
	// They need SplitBackward.
	Segments int
	// Recompute is each layer's level, from First on; nil keeps everything.
	Recompute []Recompute
	// Ahead of the last layers have room to compute again what they dropped before the
	// gradient is there: see Restore. The others do so when it has come to them.
	Ahead   int
	Storage Storage // of what matrix products read
	// ScaleBits is what gradients are multiplied by within the stack with F16 storage, as a power of
	// two: see Unscale and LossScaleBits. Others take no notice of it.
	ScaleBits int
	// DocumentMask keeps attention within documents: see SetDocuments.
	DocumentMask bool
	// LogitRows is how many rows of logits the head computes at a time; 0: about 64 MB
	// of them. Sums over rows, and so the bits of the head's gradient, depend on it where
	// it cuts a micro-batch.
	LogitRows int
	// Moments is how many vectors of optimizer state each layer's parameters have: 2 for
	// AdamW, 0 for a stack that does not train. Shares are by layer, from First on, the parts
	// of them that the stack has; nil: the whole.
	Moments int
	Shares  []Share
	// Offload keeps that state in Host, with Windows on the device to bring it there.
	Offload bool
	Host    *host.Memory
	// ForwardOnly stacks have no gradients: their passes are Forward, Loss and Logits.
	ForwardOnly bool
}

// Upper bounds of a stack, see Config's.
const (
	maxMicroBatch = 1 << 12
	maxSlots      = 1 << 12
	maxMoments    = 4
)

// level is the level of local layer i.
func (c StackConfig) level(i int) Recompute {
	if c.Recompute == nil {
		return RecomputeNothing
	}
	return c.Recompute[i]
}

// share is what the stack has of the moments of local layer i.
func (c StackConfig) share(i int) Share {
	if c.Shares == nil {
		return Share{}
	}
	return c.Shares[i]
}

// ahead tells whether local layer i is restored ahead. Where the backward pass is split, what
// the weight pass alone reads is not.
func (c StackConfig) ahead(i int) bool {
	return i >= c.End-c.First-c.Ahead && (!c.SplitBackward || c.level(i) == RecomputeBlock)
}

// masked tells whether there is attention to keep within documents.
func (c StackConfig) masked() bool {
	return c.DocumentMask && max(c.First, 1) < min(c.End, c.Model.Layers()-1)
}

func (c StackConfig) validate() error {
	if err := c.Model.Validate(); err != nil {
		return err
	}
	m := c.Model
	if err := checkAll(nil,
		bounds[int]{"first layer", c.First, 0, m.Layers() - 1},
		bounds[int]{"end layer", c.End, c.First + 1, m.Layers()},
		bounds[int]{"micro-batch", c.MicroBatch, 1, maxMicroBatch},
		bounds[int]{"slots", c.Slots, 1, maxSlots},
		bounds[int]{"logit rows", c.LogitRows, 0, maxMicroBatch * maxContext},
		bounds[int]{"moments", c.Moments, 0, maxMoments},
		bounds[int]{"layers restored ahead", c.Ahead, 0, c.End - c.First},
		bounds[int]{"bits of the gradients' scale", c.ScaleBits, 0, maxScaleBits},
	); err != nil {
		return err
	}
	if c.Storage >= storages {
		return c.Storage.invalid()
	}
	if c.Segments > 1 && !c.SplitBackward {
		return bad("segments is %d without a split backward: set SplitBackward", c.Segments)
	}
	return errors.Join(c.Model.CheckSegments(c.Segments), c.validateRecompute(), c.validateShares())
}

// validateShares wants both ends of a tied embedding in one stack to have the same share: they
// are one vector there.
func (c StackConfig) validateShares() error {
	if c.Shares == nil {
		return nil
	}
	n := c.End - c.First
	if len(c.Shares) != n {
		return bad("there are shares of %d layers: give one for each of the %d layers, or none", len(c.Shares), n)
	}
	for i, s := range c.Shares {
		if s.Index < 0 || s.Index > max(s.Count-1, 0) {
			return bad("share of layer %d is %d of %d: take one from 0 to %d", c.First+i, s.Index, s.Count, max(s.Count-1, 0))
		}
	}
	if n == c.Model.Layers() && c.Model.TiedGradLen() > 0 && c.Shares[0] != c.Shares[n-1] {
		return bad("shares of the embedding and of the head tied to it are %+v and %+v: take the same", c.Shares[0], c.Shares[n-1])
	}
	return nil
}

func (c StackConfig) validateRecompute() error {
	if n := len(c.Recompute); c.Recompute != nil && n != c.End-c.First {
		return bad("recompute has %d levels: give one for each of the %d layers, or none", n, c.End-c.First)
	}
	for i, r := range c.Recompute {
		if r >= recomputeLevels {
			return bad("recompute of layer %d is %d: take a level from %d to %d", c.First+i, r, RecomputeNothing, recomputeLevels-1)
		}
	}
	return nil
}

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

// gradLen is the length of a layer's gradient.
func (c StackConfig) gradLen(layer int) int {
	if c.ForwardOnly {
		return 0
	}
	return c.Model.TrainedLen(layer)
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

// writeConstants fills what depends on positions alone.
func (s *Stack) writeConstants() error {
	m := s.cfg.Model.Resolved()
	if err := writeTables(s.cfg.Device, m, s.rotary); err != nil || !m.slides() || s.Masked() {
		return err
	}
	return writeOnce(s.cfg.Device, func(q kernels.Queue) {
		q.Write(s.starts, kernels.Int32Bytes(m.windowStarts(s.cfg.MicroBatch)))
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

// windowStarts are the first positions that the queries [batch,T] see.
func (c Config) windowStarts(batch int) []int32 {
	var starts []int32
	for range batch {
		for t := range c.Context {
			starts = append(starts, c.windowStart(t))
		}
	}
	return starts
}

// windowStart is the first position that the query at t sees.
func (c Config) windowStart(t int) int32 {
	if c.Window == 0 {
		return 0
	}
	return int32(max(0, t-c.Window+1))
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
