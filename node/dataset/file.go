package dataset

import (
	"context"
	"fmt"
	"io"

	"pnode/planner/plan"
)

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
