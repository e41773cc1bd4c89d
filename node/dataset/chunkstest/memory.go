// Package chunkstest keeps the chunks of a data set in memory. Only tests import it.
package chunkstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io/fs"

	"pnode/planner/plan"
)

// Memory has chunks by their hash.
type Memory map[plan.Hash][]byte

// Put keeps a copy.
func (m Memory) Put(b []byte) (plan.Hash, error) {
	h := plan.Hash(sha256.Sum256(b))
	m[h] = bytes.Clone(b)
	return h, nil
}

// Chunk returns a chunk that was put, else fs.ErrNotExist.
func (m Memory) Chunk(_ context.Context, h plan.Hash) ([]byte, error) {
	b, ok := m[h]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return b, nil
}
