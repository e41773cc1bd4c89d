package dataset

import (
	"context"
	"fmt"
	"io"

	"pnode/planner/plan"
)

// ChunkBytes is the size of the chunks of a stream; the last holds the rest.
const ChunkBytes = 4 << 20

// StoreChunks cuts what write writes into chunks of ChunkBytes and gives them to put, which
// must not keep the slice, until ctx ends.
func StoreChunks(ctx context.Context, put func([]byte) (plan.Hash, error), write func(io.Writer) error) (chunks []plan.Hash, sizeBytes int64, err error) {
	w := chunkWriter{ctx: ctx, put: put}
	err = write(&w)
	if err == nil {
		err = w.flush()
	}
	return w.chunks, w.size, err
}

// chunkWriter cuts what is written into chunks.
type chunkWriter struct {
	ctx    context.Context // of the one call that the writer lives in
	put    func([]byte) (plan.Hash, error)
	buf    []byte
	chunks []plan.Hash
	size   int64
}

func (w *chunkWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), ChunkBytes-len(w.buf))
		w.buf = append(w.buf, rest[:n]...)
		rest = rest[n:]
		if len(w.buf) == ChunkBytes {
			if err := w.flush(); err != nil {
				return len(p) - len(rest), err
			}
		}
	}
	return len(p), nil
}

func (w *chunkWriter) flush() error {
	if err := w.ctx.Err(); err != nil || len(w.buf) == 0 {
		return err
	}
	h, err := w.put(w.buf)
	if err != nil {
		return fmt.Errorf("dataset: store chunk %d: %w", len(w.chunks), err)
	}
	w.chunks = append(w.chunks, h)
	w.size += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// MaxFileBytes bounds a file in chunks: they are read as a whole.
const MaxFileBytes = 256 << 20

// StoreFile streams a file of at most MaxFileBytes into chunks, as StoreChunks does.
func StoreFile(ctx context.Context, put func([]byte) (plan.Hash, error), name string, content io.Reader) (plan.DataFile, error) {
	f := plan.DataFile{Name: name}
	var err error
	f.Chunks, f.SizeBytes, err = StoreChunks(ctx, put, func(w io.Writer) error {
		n, err := io.Copy(w, io.LimitReader(content, MaxFileBytes+1))
		if n > MaxFileBytes {
			err = fmt.Errorf("over %d bytes", MaxFileBytes)
		}
		return err
	})
	if err != nil {
		return plan.DataFile{}, fmt.Errorf("dataset: store %s: %w", name, err)
	}
	return f, nil
}

// ReadFiles reads files of a spec, by name. Its errors are those of ReadFile.
func ReadFiles(ctx context.Context, src ChunkSource, files []plan.DataFile) (map[string][]byte, error) {
	contents := map[string][]byte{}
	for _, f := range files {
		var err error
		if contents[f.Name], err = ReadFile(ctx, src, f); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// ReadFile reads a file of a spec that may come from anyone. The error wraps ErrBadSpec, or
// is that of src.
func ReadFile(ctx context.Context, src ChunkSource, f plan.DataFile) ([]byte, error) {
	if f.SizeBytes < 0 || f.SizeBytes > MaxFileBytes || int64(len(f.Chunks)) != (f.SizeBytes+ChunkBytes-1)/ChunkBytes {
		return nil, fmt.Errorf("dataset: read %s: %w: %d bytes in %d chunks", f.Name, ErrBadSpec, f.SizeBytes, len(f.Chunks))
	}
	content := make([]byte, 0, f.SizeBytes)
	for _, h := range f.Chunks {
		chunk, err := src.Chunk(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("dataset: read %s: %w", f.Name, err)
		}
		content = append(content, chunk...)
	}
	if int64(len(content)) != f.SizeBytes {
		return nil, fmt.Errorf("dataset: read %s: %w: chunks of %d bytes, want %d", f.Name, ErrBadSpec, len(content), f.SizeBytes)
	}
	return content, nil
}
