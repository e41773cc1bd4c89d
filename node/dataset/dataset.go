package dataset

import (
	"fmt"

	"pnode/planner"
)

// ChunkSource reads a stored chunk whose bytes have been checked against its hash;
// *checkpoint.Store is one, a map in memory another.
type ChunkSource interface {
	Chunk(planner.Hash) ([]byte, error)
}

// Window says which windows a Dataset makes.
type Window struct {
	// Seed of the run: the same seed draws the same windows.
	Seed uint64
	// Context is the number of positions T of a sequence.
	Context int
}

// Dataset is the text in memory. It is read-only and may be used from any number of
// goroutines.
type Dataset struct {
	window  Window
	train   []byte
	heldOut []byte
}

// Open reads the stream of a spec and splits off its end: HeldOutPermille of it, and at
// least one sequence, T+1 bytes. Errors wrap ErrBadSpec, ErrTooLarge, ErrTooShort or the
// source's error.
func Open(src ChunkSource, spec planner.DataSpec, w Window) (*Dataset, error) {
	if err := check(spec, w); err != nil {
		return nil, fmt.Errorf("dataset: open: %w", err)
	}
	text := make([]byte, 0, spec.SizeBytes)
	for i, h := range spec.Chunks {
		chunk, err := src.Chunk(h)
		if err != nil {
			return nil, fmt.Errorf("dataset: open: chunk %d of %d: %w", i, len(spec.Chunks), err)
		}
		if want := min(ChunkBytes, spec.SizeBytes-int64(len(text))); int64(len(chunk)) != want {
			return nil, fmt.Errorf("dataset: open: %w: chunk %d of %d (%s) has %d bytes, want %d",
				ErrBadSpec, i, len(spec.Chunks), h, len(chunk), want)
		}
		text = append(text, chunk...)
	}
	cut := len(text) - heldOutBytes(spec, w)
	return &Dataset{window: w, train: text[:cut:cut], heldOut: text[cut:]}, nil
}

// check bounds everything before the first allocation.
func check(spec planner.DataSpec, w Window) error {
	if spec.SizeBytes > MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are accepted; give less with --data", ErrTooLarge, spec.SizeBytes, int64(MaxBytes))
	}
	if w.Context < 1 || int64(w.Context) > MaxBytes {
		return fmt.Errorf("%w: context of %d positions", ErrBadSpec, w.Context)
	}
	if spec.HeldOutPermille < 0 || spec.HeldOutPermille > 999 {
		return fmt.Errorf("%w: held-out share of %d permille, 0 to 999 are accepted", ErrBadSpec, spec.HeldOutPermille)
	}
	chunks := int64(len(spec.Chunks))
	if spec.SizeBytes < 0 || chunks != (spec.SizeBytes+ChunkBytes-1)/ChunkBytes {
		return fmt.Errorf("%w: %d bytes in %d chunks of %d", ErrBadSpec, spec.SizeBytes, chunks, ChunkBytes)
	}
	train := spec.SizeBytes - int64(heldOutBytes(spec, w))
	if one := int64(w.Context) + 1; train < one {
		return fmt.Errorf("%w: %d bytes, of which %d are held out; a context of %d needs %d to train on and as many held out; "+
			"give more text or choose a shorter context", ErrTooShort, spec.SizeBytes, heldOutBytes(spec, w), w.Context, one)
	}
	return nil
}

func heldOutBytes(spec planner.DataSpec, w Window) int {
	return max(int(spec.SizeBytes*int64(spec.HeldOutPermille)/1000), w.Context+1)
}

// Micro gives tokens and targets, [batch,T] each, of a micro-batch: windows drawn with
// replacement from the part to train on. Row b of micro-batch m is sequence m*batch+b of
// the step, so the sequences of a step do not depend on how it is cut.
func (d *Dataset) Micro(step planner.Step, micro planner.Micro, batch int) (tokens, targets []int32) {
	return d.rows(d.train, batch, func(row int) int {
		sequence := uint64(micro)*uint64(batch) + uint64(row)
		starts := uint64(len(d.train) - d.window.Context) // each leaves room for T+1 bytes
		return int(draw(d.window.Seed, uint64(step), sequence, starts))
	})
}

// HeldOut gives tokens and targets, [batch,T] each, of window set index in
// [0, HeldOutMicros): neighbouring windows that do not overlap, in order. When the held-out
// part has fewer windows than the batch has rows, they repeat from the first.
func (d *Dataset) HeldOut(index, batch int) (tokens, targets []int32) {
	windows := d.heldOutWindows()
	return d.rows(d.heldOut, batch, func(row int) int {
		return (index*batch + row) % windows * d.window.Context
	})
}

// HeldOutMicros is how many window sets of this batch the held-out part gives: at least 1
// and at most limit.
func (d *Dataset) HeldOutMicros(batch, limit int) int {
	return max(1, min(limit, d.heldOutWindows()/batch))
}

// heldOutWindows is at least 1: T bytes each, and one more for the last target.
func (d *Dataset) heldOutWindows() int {
	return (len(d.heldOut) - 1) / d.window.Context
}

// TrainBytes is the size of the part to train on.
func (d *Dataset) TrainBytes() int64 { return int64(len(d.train)) }

// HeldOutBytes is the size of the held-out part.
func (d *Dataset) HeldOutBytes() int64 { return int64(len(d.heldOut)) }

func (d *Dataset) rows(text []byte, batch int, start func(row int) int) (tokens, targets []int32) {
	t := d.window.Context
	tokens, targets = make([]int32, batch*t), make([]int32, batch*t)
	for row := range batch {
		at := start(row)
		for i, b := range text[at : at+t] {
			tokens[row*t+i] = int32(b)
		}
		for i, b := range text[at+1 : at+t+1] {
			targets[row*t+i] = int32(b)
		}
	}
	return tokens, targets
}
