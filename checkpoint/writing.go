package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"lukechampine.com/blake3"

	"pnode/planner/plan"
)

// Writing protects the chunks put through it from every sweep until Abort.
// It may be used from any number of goroutines.
type Writing struct {
	s      *Store
	behind bool // see BeginBehind

	mu   sync.Mutex // guards held and done
	held []plan.Hash
	done bool
}

// Begin starts a Writing; end it with Abort once a Pin or a manifest refers to its chunks. It lives in
// memory only: chunks that must outlast the process before their manifest is known need a Pin.
func (s *Store) Begin() *Writing { return &Writing{s: s} }

// BeginBehind is Begin for chunks that can be read as soon as they are put, and are durable only after Settle. A crash of the process or the
// machine before loses them.
func (s *Store) BeginBehind() *Writing { return &Writing{s: s, behind: true} }

// PutChunk is Store.PutChunk with protection, from before the first look at the chunk's file.
func (w *Writing) PutChunk(data []byte) (plan.Hash, error) {
	h := plan.Hash(blake3.Sum256(data))
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return h, fmt.Errorf("checkpoint: put chunk %s: writing %w", h, ErrClosed)
	}
	w.s.guard.hold(h)
	w.held = append(w.held, h)
	w.mu.Unlock()
	if w.behind {
		return h, w.s.putBehind(h, data)
	}
	return h, w.s.putChunk(h, data)
}

// WriteLayer cuts a stream into chunks as Cut says, and gives their hashes in order and the stream's length in bytes. What is
// longer than that goes on in chunks of ChunkBytes.
func (w *Writing) WriteLayer(ctx context.Context, r io.Reader, cut Cut) ([]plan.Hash, int64, error) {
	var hashes []plan.Hash
	var size int64
	buf := make([]byte, ChunkBytes)
	for end := false; !end; {
		if err := ctx.Err(); err != nil {
			return nil, 0, fmt.Errorf("checkpoint: write layer after %d bytes: %w", size, err)
		}
		var n int
		var err error
		room := cut.Chunk(len(hashes))
		if room <= 0 {
			room = ChunkBytes
		}
		if n, end, err = fill(buf[:room], r); err != nil {
			return nil, 0, fmt.Errorf("checkpoint: write layer: reading its state after %d bytes: %w", size+int64(n), err)
		}
		if n == 0 {
			break
		}
		h, err := w.PutChunk(buf[:n])
		if err != nil {
			return nil, 0, err
		}
		hashes = append(hashes, h)
		size += int64(n)
	}
	return hashes, size, nil
}

// Cut says how a layer's state of so many Bytes lies in chunks: each has ChunkBytes but the last one. Where that takes no more
// chunks one ends after Head bytes, the layer's parameters, which are read without the rest then.
type Cut struct{ Bytes, Head int64 }

// Chunk returns the size of the chunk with a number, 0 where there is none.
func (c Cut) Chunk(number int) int64 { return c.Begins(number+1) - c.Begins(number) }

// Begins returns at which byte of the state the chunk with a number begins, Bytes after the last one.
func (c Cut) Begins(number int) int64 {
	n, head := int64(number), (c.Head+ChunkBytes-1)/ChunkBytes
	rest := c.Bytes - c.Head
	apart := 0 < c.Head && 0 < rest && head+(rest+ChunkBytes-1)/ChunkBytes == (c.Bytes+ChunkBytes-1)/ChunkBytes
	if apart && n >= head {
		return min(c.Head+(n-head)*ChunkBytes, c.Bytes)
	}
	return min(n*ChunkBytes, c.Bytes)
}

// fill reads until buf is full or r ends. Only io.EOF is an end: io.ReadFull would also
// take a source that broke off with io.ErrUnexpectedEOF for one.
func fill(buf []byte, r io.Reader) (n int, end bool, err error) {
	for n < len(buf) {
		k, err := r.Read(buf[n:])
		n += k
		if errors.Is(err, io.EOF) {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// Abort ends the Writing: its chunks go with the next sweep unless something refers to
// them. After another Abort it does nothing.
func (w *Writing) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.s.guard.release(w.held...)
	w.held = nil
}
