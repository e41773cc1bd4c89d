package dataset

import (
	"context"
	"encoding/binary"
	"fmt"

	"pnode/planner/plan"
)

// ChunkSource reads a stored chunk whose bytes have been checked against its hash. It may
// bring the chunk from elsewhere first, until ctx ends.
type ChunkSource interface {
	Chunk(ctx context.Context, h plan.Hash) ([]byte, error)
}

// Dataset makes token windows of a stream. It may be used from any number of goroutines.
type Dataset struct {
	*Sampler
	spec   plan.DataSpec
	chunks *chunkCache
}

// Open checks the spec against the window; chunks are read from src when windows need
// them. Errors are those of NewSampler.
func Open(src ChunkSource, spec plan.DataSpec, w Window) (*Dataset, error) {
	sampler, err := NewSampler(spec, w)
	if err != nil {
		return nil, err
	}
	d := &Dataset{Sampler: sampler, spec: spec}
	d.chunks = newChunkCache(cacheChunks, func(ctx context.Context, i int64) ([]byte, error) {
		chunk, err := src.Chunk(ctx, spec.Chunks[i])
		if err != nil {
			return nil, fmt.Errorf("dataset: chunk %d of %d: %w", i, len(spec.Chunks), err)
		}
		if want := min(ChunkBytes, spec.SizeBytes-i*ChunkBytes); int64(len(chunk)) != want {
			return nil, fmt.Errorf("dataset: %w: chunk %d of %d (%s) has %d bytes, want %d",
				ErrBadSpec, i, len(spec.Chunks), spec.Chunks[i], len(chunk), want)
		}
		return chunk, nil
	})
	return d, nil
}

// ChunkOrder lists all chunks in the order in which the steps from the given one on want
// them; what is held out alone comes last.
func (d *Dataset) ChunkOrder(step plan.Step) []plan.Hash {
	epoch, position := d.position(max(step, 1), 0)
	order, slots := d.order(epoch), d.stream.chunks()
	begin := order.slot(position) / poolChunks * poolChunks
	hashes := make([]plan.Hash, 0, len(d.spec.Chunks))
	for i := range slots {
		hashes = append(hashes, d.spec.Chunks[order.chunk((begin+i)%slots)])
	}
	return append(hashes, d.spec.Chunks[slots:]...)
}

// Micro returns tokens and targets, [B,T] each, of a micro-batch of a step: row b of
// micro-batch m is row m*batch+b of the step, so a step's sequences do not depend on how it
// is cut.
func (d *Dataset) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	return d.rows(ctx, batch, func(row int) (int64, error) {
		sample, err := d.At(step, int(micro)*batch+row)
		return sample.Token, err
	})
}

// HeldOut returns tokens and targets, [B,T] each, of window set index in [0, HeldOutMicros):
// neighbouring windows that do not overlap, in order. When the held-out part has fewer
// windows than the batch has rows, they repeat from the first.
func (d *Dataset) HeldOut(ctx context.Context, index, batch int) (tokens, targets []int32, err error) {
	windows := d.heldOutWindows()
	return d.rows(ctx, batch, func(row int) (int64, error) {
		window := (int64(index)*int64(batch) + int64(row)) % windows
		return d.stream.train + window*d.stream.context, nil
	})
}

// HeldOutMicros is how many window sets of this batch the held-out part gives: at least 1
// and at most limit.
func (d *Dataset) HeldOutMicros(batch, limit int) int {
	return int(max(1, min(int64(limit), d.heldOutWindows()/int64(batch))))
}

// heldOutWindows is at least 1: T tokens each, and one more for the last target.
func (d *Dataset) heldOutWindows() int64 { return (d.heldOut - 1) / d.stream.context }

// rows reads a window of T+1 tokens for each row.
func (d *Dataset) rows(ctx context.Context, batch int, start func(row int) (int64, error)) (tokens, targets []int32, err error) {
	t := d.window.Context
	tokens, targets = make([]int32, 0, batch*t), make([]int32, 0, batch*t)
	window := make([]int32, 0, t+1)
	for row := range batch {
		at, err := start(row)
		if err != nil {
			return nil, nil, err
		}
		if window, err = d.read(ctx, window[:0], at); err != nil {
			return nil, nil, err
		}
		tokens, targets = append(tokens, window[:t]...), append(targets, window[1:]...)
	}
	return tokens, targets, nil
}

// read appends the tokens from number at on until dst is full.
func (d *Dataset) read(ctx context.Context, dst []int32, at int64) ([]int32, error) {
	width, vocab := int64(d.spec.TokenBytes()), uint32(min(d.spec.Vocab(), d.window.Vocab))
	for len(dst) < cap(dst) {
		chunk := at / d.stream.chunk
		bytes, err := d.chunks.get(ctx, chunk)
		if err != nil {
			return dst, err
		}
		bytes = bytes[at%d.stream.chunk*width:]
		bytes = bytes[:min(int64(len(bytes)), int64(cap(dst)-len(dst))*width)]
		before := len(dst)
		for ; len(bytes) > 0; bytes = bytes[width:] {
			token := uint32(bytes[0])
			switch width {
			case 2:
				token = uint32(binary.LittleEndian.Uint16(bytes))
			case 4:
				token = binary.LittleEndian.Uint32(bytes)
			}
			if token >= vocab { // the embedding has no row for it
				return dst, fmt.Errorf("dataset: %w: chunk %d (%s) holds token %d, the vocabulary ends at %d; tokenize the text again",
					ErrBadSpec, chunk, d.spec.Chunks[chunk], token, vocab-1)
			}
			dst = append(dst, int32(token))
		}
		at += int64(len(dst) - before)
	}
	return dst, nil
}
