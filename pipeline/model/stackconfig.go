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
	// Partials counts sums of gradients that wait while Grads takes others.
	Partials int
	// Moments is how many vectors of optimizer state each layer's parameters have: 2 for
	// AdamW, 0 for a stack that does not train. Shares are by layer, from First on, the parts
	// of them that the stack has; nil: the whole.
	Moments int
	Shares  []Share
	// WholeMatrices is the StateLayout's. It cannot be with Offload.
	WholeMatrices bool
	// Offload keeps that state in Host, with Windows on the device to bring it there.
	Offload bool
	Host    *host.Memory
	// Scratch counts the elements that an update needs besides what it changes.
	Scratch int
	// Undo has room for the state before an update: see KeepState. It cannot be with Offload.
	Undo bool
	// From names stacks by layer, whose memory of that layer's parameters and moments the new stack takes over with what
	// is in it, where both have it in the same form on the same device. It counts for NewStack and Memory alone.
	From map[int]*Stack
	// ForwardOnly stacks have no gradients: their passes are Forward, Loss and Logits.
	ForwardOnly bool
}

// Upper bounds of a stack, see Config's.
const (
	maxMicroBatch = 1 << 12
	maxSlots      = 1 << 12
	maxMoments    = 4
	maxPartials   = 64
)

// level is the level of local layer i.
func (c StackConfig) level(i int) Recompute {
	if c.Recompute == nil {
		return RecomputeNothing
	}
	return c.Recompute[i]
}

// share returns the stack's share of the moments of local layer i.
func (c StackConfig) share(i int) Share {
	if c.Shares == nil {
		return Share{}
	}
	return c.Shares[i]
}

// ahead reports whether local layer i is restored ahead. Where the backward pass is split, what
// the weight pass alone reads is not.
func (c StackConfig) ahead(i int) bool {
	return i >= c.End-c.First-c.Ahead && (!c.SplitBackward || c.level(i) == RecomputeBlock)
}

// masked reports whether there is attention to keep within documents.
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
		bounds[int]{"partials", c.Partials, 0, maxPartials},
		bounds[int]{"elements of scratch", c.Scratch, 0, arenaMax},
		bounds[int]{"layers restored ahead", c.Ahead, 0, c.End - c.First},
		bounds[int]{"bits of the gradients' scale", c.ScaleBits, 0, maxScaleBits},
	); err != nil {
		return err
	}
	if err := checkEnum("storage", uint8(c.Storage), storageNames); err != nil {
		return err
	}
	if c.Segments > 1 && !c.SplitBackward {
		return bad("segments is %d without a split backward: set SplitBackward", c.Segments)
	}
	if c.WholeMatrices && c.Offload {
		return bad("moments are in host memory, from where matrices that are updated as a whole do not pass through windows: keep them on the device")
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
		if err := checkEnum(fmt.Sprintf("recompute of layer %d", c.First+i), uint8(r), recomputeNames); err != nil {
			return err
		}
	}
	return nil
}
