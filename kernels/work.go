package kernels

// Work groups ops whose calls take about the same time at one size, on any device: a node measures each at
// WorkSizes sizes. The zero value is invalid.
type Work uint8

// The works. The size of products is their operations, of attention those of one head and sequence, of all others the bytes
// that they move.
const (
	_ Work = iota
	WorkProducts
	WorkAttentionForward
	WorkAttentionBackward
	// WorkNonlinear computes exponentials: activations, losses.
	WorkNonlinear
	// WorkStreaming does little with each element: norms, sums, embeddings.
	WorkStreaming
	// WorkUpdate is the optimizer's, with the norm of the gradient.
	WorkUpdate
	// WorkCopy brings bytes to a device's own memory while as many come back.
	WorkCopy

	works
)

// Works counts the works, WorkSizes the sizes of each.
const Works, WorkSizes = int(works) - 1, 7

func (w Work) String() string {
	names := [...]string{
		"invalid", WorkProducts: "products", WorkAttentionForward: "attention", WorkAttentionBackward: "attention-backward",
		WorkNonlinear: "nonlinear", WorkStreaming: "streaming", WorkUpdate: "update", WorkCopy: "copy",
	}
	if w >= works {
		w = 0
	}
	return names[w]
}

// Sizes returns the sizes that a work is measured at, from those of a tiny model's calls to those that fill a large card.
func (w Work) Sizes() (sizes [WorkSizes]int64) {
	sizes = [WorkSizes]int64{1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 26, 1 << 28}
	switch w {
	case WorkProducts:
		sizes = [WorkSizes]int64{1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 27, 1 << 30, 1 << 36}
	case WorkAttentionForward, WorkAttentionBackward:
		sizes = [WorkSizes]int64{1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 23, 1 << 25, 1 << 27}
	}
	if w == WorkAttentionBackward {
		for i := range sizes {
			sizes[i] = sizes[i] / 2 * 5 // five products where the forward has two
		}
	}
	return sizes
}

// Work returns which work a call is, and how many of which size: attention as many as it has heads and sequences.
func (c Call) Work() (w Work, size, count int64) {
	info := Info(c.Op)
	switch info.Class {
	case ClassMatMul:
		return WorkProducts, info.FLOPs(c), 1
	case ClassAttention:
		w = WorkAttentionForward
		if c.Op == OpAttentionBackward || c.Op == OpAttentionBackwardPart {
			w = WorkAttentionBackward
		}
		count = max(1, int64(c.Dims[0])*int64(c.Dims[2]))
		return w, info.FLOPs(c) / count, count
	case ClassOptimizer:
		return WorkUpdate, info.Bytes(c), 1
	}
	switch c.Op {
	case OpGELUForward, OpGELUBackward, OpSwiGLUForward, OpSwiGLUBackward, OpDropout, OpCrossEntropy:
		return WorkNonlinear, info.Bytes(c), 1
	}
	return WorkStreaming, info.Bytes(c), 1
}

// SizeTimes are the nanoseconds that one of a work takes at each of its sizes, none less than at a smaller size; zero where
// nobody measured them.
type SizeTimes [WorkSizes]int64

// Measured reports whether there are times.
func (t SizeTimes) Measured() bool { return t[0] > 0 }

// WorkTimes are the times of each work on a device, with operands of one type.
type WorkTimes struct {
	Products          SizeTimes `json:"products,omitzero"`
	AttentionForward  SizeTimes `json:"attention,omitzero"`
	AttentionBackward SizeTimes `json:"attention_backward,omitzero"`
	Nonlinear         SizeTimes `json:"nonlinear,omitzero"`
	Streaming         SizeTimes `json:"streaming,omitzero"`
	Update            SizeTimes `json:"update,omitzero"`
	Copy              SizeTimes `json:"copy,omitzero"`
}

// Of returns the times of a work; it panics on an invalid one.
func (t *WorkTimes) Of(w Work) *SizeTimes {
	return [...]*SizeTimes{&t.Products, &t.AttentionForward, &t.AttentionBackward, &t.Nonlinear, &t.Streaming, &t.Update, &t.Copy}[w-1]
}
