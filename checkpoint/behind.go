package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"lukechampine.com/blake3"

	"pnode/planner/plan"
)

// behind holds the chunks that are written and not durable yet. A file in tmp has each, mostly in the operating system's memory alone. What is
// left of them when the store is opened again is removed.
type behind struct {
	mu    sync.Mutex // guards files
	files map[plan.Hash]*unsettled
}

// unsettled is the file in tmp of a chunk that is not durable yet.
type unsettled struct {
	path string
	size int64

	mu     sync.Mutex // guards the others
	gone   bool       // it is durable, or was removed
	named  bool       // it has its name among the chunks
	failed bool       // its bytes may be lost, whatever a later sync says
}

// get returns the file of a chunk; nil where there is none.
func (b *behind) get(h plan.Hash) *unsettled {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[h]
}

// add keeps a file unless the chunk has one.
func (b *behind) add(h plan.Hash, u *unsettled) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.files[h] != nil {
		return false
	}
	if b.files == nil {
		b.files = map[plan.Hash]*unsettled{}
	}
	b.files[h] = u
	return true
}

// all returns the chunks that have a file.
func (b *behind) all() (hashes []plan.Hash) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.files {
		hashes = append(hashes, h)
	}
	return hashes
}

// end takes a chunk's file away by a change, once. The caller holds nothing.
func (b *behind) end(h plan.Hash, change func(*unsettled) error) error {
	u := b.get(h)
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone {
		return nil
	}
	if err := change(u); err != nil {
		return err
	}
	u.gone = true
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.files, h)
	return nil
}

// putBehind is put of a chunk that is held, but for the syncs.
func (c *chunkFolder) putBehind(h plan.Hash, data []byte) error {
	if len(data) == 0 || len(data) > ChunkBytes {
		return fmt.Errorf("%w: %d bytes, 1 to %d are accepted", ErrTooLarge, len(data), ChunkBytes)
	}
	if u := c.behind.get(h); u != nil {
		u.mu.Lock()
		failed := u.failed
		u.mu.Unlock()
		if !failed {
			return nil
		}
		return c.put(h, data)
	}
	if _, err := os.Stat(c.path(h)); err == nil {
		return c.put(h, data) // it is there, or damaged
	}
	size := int64(len(data))
	done, err := c.space.take(size, forChunks)
	if err != nil {
		return err
	}
	defer done()
	u := &unsettled{path: c.tmp(h), size: size}
	f, err := c.disk.Create(u.path)
	if err == nil {
		err = errors.Join(f.WriteAt(data, 0), f.Close())
	}
	if err != nil || !c.behind.add(h, u) {
		_ = os.Remove(u.path) // Open removes what is left
	}
	return c.space.explain(err, size)
}

// settle makes a chunk durable that is held; one that has no file in tmp is, or is not here. After a failed sync the bytes are written once
// more: the operating system may have dropped them, and would not say so again.
func (c *chunkFolder) settle(h plan.Hash) error {
	if c.behind.get(h) == nil {
		return c.syncName(h)
	}
	return c.behind.end(h, func(u *unsettled) error {
		if u.failed {
			return c.rewrite(h, u)
		}
		if !u.named {
			f, err := c.disk.Open(u.path)
			if err == nil {
				err = errors.Join(f.Sync(), f.Close())
			}
			if u.failed = err != nil; u.failed {
				return c.space.explain(err, u.size)
			}
			err = c.rename(u.path, h)
			if u.named = err == nil; err != nil {
				return c.rewrite(h, u) // Windows renames no file that is being read
			}
		}
		return c.space.explain(c.syncName(h), u.size)
	})
}

// rewrite puts a chunk whose file could not be synced or renamed.
func (c *chunkFolder) rewrite(h plan.Hash, u *unsettled) error {
	data, err := os.ReadFile(u.path)
	if err == nil && plan.Hash(blake3.Sum256(data)) != h {
		err = fmt.Errorf("%w: its %d bytes were lost before they were durable", ErrCorrupt, len(data))
	}
	if err == nil {
		err = c.store(h, data)
	}
	if err == nil {
		_ = c.disk.Remove(u.path) // Open removes what is left
	}
	return err
}

// drop removes the file of a chunk that is not durable yet.
func (c *chunkFolder) drop(h plan.Hash) error {
	return c.behind.end(h, func(u *unsettled) error { return ignoreMissing(c.disk.Remove(u.path)) })
}

// open opens a chunk's file, which may get its name among the chunks meanwhile.
func (c *chunkFolder) open(h plan.Hash) (*os.File, error) {
	f, err := os.Open(c.path(h))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if u := c.behind.get(h); u != nil {
		if f, err = os.Open(u.path); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return os.Open(c.path(h))
}
