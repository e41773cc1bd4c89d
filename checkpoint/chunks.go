package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"lukechampine.com/blake3"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// ChunkBytes is the size of every chunk of a stream except the last, and the greatest
// size of a chunk.
const ChunkBytes = 4 << 20

// PutChunk stores 1 to ChunkBytes bytes and returns their BLAKE3-256. It is durable when it
// returns. A later sweep removes it unless a Pin, a Manifest or a Writing holds it by then.
func (s *Store) PutChunk(data []byte) (plan.Hash, error) {
	h := plan.Hash(blake3.Sum256(data))
	return h, s.putChunk(h, data)
}

// PutNamed stores a chunk received from elsewhere under the name it was asked for by.
// Bytes that do not match the name are refused with ErrCorrupt.
func (s *Store) PutNamed(h plan.Hash, data []byte) error {
	if got := plan.Hash(blake3.Sum256(data)); got != h {
		return fmt.Errorf("checkpoint: put chunk %s: %w: the %d bytes have hash %s", h, ErrCorrupt, len(data), got)
	}
	return s.putChunk(h, data)
}

func (s *Store) putChunk(h plan.Hash, data []byte) error {
	return s.during("put chunk "+h.String(), func() error {
		s.guard.hold(h)
		defer s.guard.release(h)
		return s.chunks.put(h, data)
	})
}

// Settle returns when those of some chunks are durable that are here.
func (s *Store) Settle(hashes []plan.Hash) error {
	return s.during("make chunks durable", func() error {
		s.guard.hold(hashes...)
		defer s.guard.release(hashes...)
		for _, h := range hashes {
			if err := s.chunks.settle(h); err != nil {
				return fmt.Errorf("chunk %s: %w", h, err)
			}
		}
		return nil
	})
}

func (s *Store) putBehind(h plan.Hash, data []byte) error {
	return s.during("put chunk "+h.String(), func() error {
		s.guard.hold(h)
		defer s.guard.release(h)
		return s.chunks.putBehind(h, data)
	})
}

// HasChunk reports whether a file of this name and a possible size is here; only Chunk and
// Verify look at its bytes.
func (s *Store) HasChunk(h plan.Hash) bool { return s.chunks.has(h) }

// Chunk reads a chunk and checks its hash. The error wraps ErrNotFound, or ErrCorrupt:
// then the file has been moved to the quarantine, so that the chunk can be put again, unless the store is open to read alone.
func (s *Store) Chunk(h plan.Hash) (data []byte, err error) {
	err = s.during("read chunk "+h.String(), func() error {
		data, err = s.chunks.get(h)
		return err
	})
	return data, err
}

// Fits returns an error that wraps ErrDiskFull unless n bytes of chunks fit, with spare bytes left free on top of the
// reserve.
func (s *Store) Fits(n, spare int64) error {
	if s.reads {
		return ErrReadOnly
	}
	done, err := s.catalog.space.takeBeside(spare, n, forChunks)
	if err == nil {
		done()
	}
	return err
}

// ReadLayer writes the chunks' bytes to dst in order, each checked before it is written.
func (s *Store) ReadLayer(ctx context.Context, hashes []plan.Hash, dst io.Writer) error {
	for i, h := range hashes {
		data, err := []byte(nil), ctx.Err()
		if err == nil {
			data, err = s.Chunk(h)
		}
		if err != nil {
			return fmt.Errorf("checkpoint: read layer: chunk %d of %d: %w", i, len(hashes), err)
		}
		if _, err := dst.Write(data); err != nil {
			return fmt.Errorf("checkpoint: read layer: chunk %d of %d: writing it on: %w", i, len(hashes), err)
		}
	}
	return nil
}

// chunkFolder is the part of a store's directory that holds chunk files.
type chunkFolder struct {
	dir     string // the store's
	disk    disk.Disk
	reads   bool // and moves nothing aside
	space   *space
	log     *slog.Logger
	writes  atomic.Uint64 // numbers files in tmp
	renames sync.Mutex    // guards changes of the file with a chunk's name, and names
	names   [256]naming   // by folder
	behind  behind
}

// naming counts what happened to the names in a folder of chunks since the store was opened.
type naming struct {
	changes uint64
	durable uint64 // so many changes and one: those of the process before
}

// makeDirs creates the fixed directories and empties tmp. All fan-out directories are
// made here, so that only chunk files change later and one directory sync each is enough.
func (c *chunkFolder) makeDirs() error {
	names := []string{"tmp", "quarantine", "manifests", "chunks", "index"}
	for i := range 256 {
		names = append(names, fmt.Sprintf("chunks/%02x", i))
	}
	for _, name := range names {
		if err := c.disk.MakeFolder(filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	left, err := os.ReadDir(filepath.Join(c.dir, "tmp"))
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := c.disk.Remove(filepath.Join(c.dir, "tmp", e.Name())); err != nil {
			return err
		}
	}
	return errors.Join(c.disk.SyncFolder(filepath.Join(c.dir, "chunks")), c.disk.SyncFolder(c.dir))
}

// put stores a chunk that is held, also in place of one that is not durable yet.
func (c *chunkFolder) put(h plan.Hash, data []byte) error {
	err := c.store(h, data)
	if err == nil {
		err = c.drop(h)
	}
	return err
}

// rename gives a file a chunk's name, which is durable after syncName.
func (c *chunkFolder) rename(file string, h plan.Hash) error {
	c.renames.Lock()
	defer c.renames.Unlock()
	c.names[h[0]].changes++
	return c.disk.Rename(file, c.path(h))
}

// syncName makes a chunk's name durable: whoever gave it, maybe a process before, may not have got so far.
func (c *chunkFolder) syncName(h plan.Hash) error {
	c.renames.Lock()
	folder := &c.names[h[0]]
	changes, durable := folder.changes, folder.durable
	c.renames.Unlock()
	if durable > changes {
		return nil
	}
	err := c.disk.SyncFolder(filepath.Dir(c.path(h)))
	if err == nil {
		c.renames.Lock()
		folder.durable = max(folder.durable, changes+1)
		c.renames.Unlock()
	}
	return err
}

// store is put but for another file of the chunk. A file that is already there counts only if its bytes are
// right, and its name is synced once more: the put that made it may not have got so far.
func (c *chunkFolder) store(h plan.Hash, data []byte) error {
	if len(data) == 0 || len(data) > ChunkBytes {
		return fmt.Errorf("%w: %d bytes, 1 to %d are accepted", ErrTooLarge, len(data), ChunkBytes)
	}
	path := c.path(h)
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(data)) {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			return c.syncName(h)
		}
	}
	size := int64(len(data))
	done, err := c.space.take(size, forChunks)
	if err != nil {
		return err
	}
	defer done()
	tmp := c.tmp(h)
	if err = c.disk.WriteNew(tmp, data); err == nil {
		err = c.rename(tmp, h)
	}
	if err == nil {
		err = c.syncName(h)
	} else {
		_ = os.Remove(tmp) // Open removes what is left
	}
	return c.space.explain(err, size)
}

// has reports whether a file of this name and a possible size is here.
func (c *chunkFolder) has(h plan.Hash) bool {
	size := c.size(h)
	return size > 0 && size <= ChunkBytes
}

// size returns the bytes of a chunk's file, -1 when there is none.
func (c *chunkFolder) size(h plan.Hash) int64 {
	if u := c.behind.get(h); u != nil {
		return u.size
	}
	st, err := os.Stat(c.path(h))
	if err != nil || !st.Mode().IsRegular() {
		return -1
	}
	return st.Size()
}

// get reads a chunk and moves a damaged one to the quarantine. Before that it looks once more with
// renames locked: the chunk may have been put again meanwhile.
func (c *chunkFolder) get(h plan.Hash) ([]byte, error) {
	data, err := c.read(h)
	if c.reads || !errors.Is(err, ErrCorrupt) {
		return data, err
	}
	if c.behind.get(h) != nil {
		return nil, errors.Join(err, c.drop(h)) // it has no name yet that counts, and nothing to be learned from
	}
	c.renames.Lock()
	defer c.renames.Unlock()
	if data, err = c.read(h); !errors.Is(err, ErrCorrupt) {
		return data, err
	}
	to := c.quarantinePath(h)
	c.log.Error("damaged chunk moved aside", "chunk", h.String(), "to", to, "cause", err)
	if e := c.disk.Rename(c.path(h), to); e != nil {
		return nil, fmt.Errorf("%w; moving it aside: %w", err, e)
	}
	return nil, fmt.Errorf("%w; moved to %s, fetch it again from another node", err, to)
}

func (c *chunkFolder) read(h plan.Hash) ([]byte, error) {
	f, err := c.open(h)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 || st.Size() > ChunkBytes {
		return nil, fmt.Errorf("%w: the file has %d bytes", ErrCorrupt, st.Size())
	}
	data := make([]byte, st.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	if got := plan.Hash(blake3.Sum256(data)); got != h {
		return nil, fmt.Errorf("%w: the %d bytes have hash %s", ErrCorrupt, len(data), got)
	}
	return data, nil
}

// walk calls fn for the chunk files in order of their names. Files with other names are not the
// store's, and stay.
func (c *chunkFolder) walk(fn func(h plan.Hash, size int64) error) error {
	for i := range 256 {
		entries, err := os.ReadDir(filepath.Join(c.dir, "chunks", fmt.Sprintf("%02x", i)))
		if err := ignoreMissing(err); err != nil {
			return err
		}
		for _, e := range entries {
			var h plan.Hash
			if h.UnmarshalText([]byte(e.Name())) != nil || int(h[0]) != i {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // moved to the quarantine meanwhile
			}
			if err != nil {
				return err
			}
			if err := fn(h, info.Size()); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepQuarantine removes damaged chunks that are no longer needed or are here again.
func (c *chunkFolder) sweepQuarantine(live map[plan.Hash]bool) error {
	entries, err := os.ReadDir(filepath.Join(c.dir, "quarantine"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		var h plan.Hash
		if h.UnmarshalText([]byte(e.Name())) != nil || live[h] && !c.has(h) {
			continue
		}
		if err := ignoreMissing(c.disk.Remove(c.quarantinePath(h))); err != nil {
			return err
		}
	}
	return nil
}

// tmp returns a new name for what is to be a chunk's file.
func (c *chunkFolder) tmp(h plan.Hash) string {
	return filepath.Join(c.dir, "tmp", fmt.Sprintf("%s-%d", h, c.writes.Add(1)))
}

func (c *chunkFolder) path(h plan.Hash) string { return chunkPath(c.dir, h) }

func chunkPath(dir string, h plan.Hash) string {
	name := h.String()
	return filepath.Join(dir, "chunks", name[:2], name)
}

func (c *chunkFolder) quarantinePath(h plan.Hash) string {
	return filepath.Join(c.dir, "quarantine", h.String())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
