package dataset

import (
	"context"
	"errors"
	"sync"
)

// cacheChunks is how many chunks stay in memory: a pool, and what its last samples reach
// into or the next pool begins with.
const cacheChunks = poolChunks + 4

// CacheBytes is how much of a text a Dataset keeps in memory at most.
const CacheBytes = cacheChunks * ChunkBytes

// chunkCache keeps the chunks used last. A chunk that several goroutines want is loaded
// once.
type chunkCache struct {
	capacity int
	load     func(ctx context.Context, chunk int64) ([]byte, error)

	mu      sync.Mutex // guards what follows
	clock   uint64     // counts uses
	entries map[int64]*cached
}

// cached is a chunk that is there or being loaded; bytes and err are set before ready is
// closed and not changed after.
type cached struct {
	ready chan struct{}
	bytes []byte
	err   error
	used  uint64
}

func newChunkCache(capacity int, load func(context.Context, int64) ([]byte, error)) *chunkCache {
	return &chunkCache{capacity: capacity, load: load, entries: map[int64]*cached{}}
}

// get returns a chunk, which must not be changed. What another goroutine's context ended is
// loaded again.
func (c *chunkCache) get(ctx context.Context, chunk int64) ([]byte, error) {
	for {
		e, mine := c.entry(chunk)
		if mine {
			e.bytes, e.err = c.load(ctx, chunk)
			c.mu.Lock()
			if e.err != nil && c.entries[chunk] == e { // else it was evicted and made anew
				delete(c.entries, chunk)
			}
			c.mu.Unlock()
			close(e.ready)
			return e.bytes, e.err
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded) || ctx.Err() != nil {
			return e.bytes, e.err
		}
	}
}

// entry finds the entry of a chunk, or makes one that the caller is to load.
func (c *chunkCache) entry(chunk int64) (e *cached, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	e, found := c.entries[chunk]
	if !found {
		for len(c.entries) >= c.capacity { // whoever reads the oldest keeps its bytes alive
			var oldest int64
			least := c.clock
			for chunk, e := range c.entries { // uses differ, so the order does not matter
				if e.used < least {
					oldest, least = chunk, e.used
				}
			}
			delete(c.entries, oldest)
		}
		e = &cached{ready: make(chan struct{})}
		c.entries[chunk] = e
	}
	e.used = c.clock
	return e, !found
}
