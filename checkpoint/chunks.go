package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lukechampine.com/blake3"

	"pnode/planner/plan"
)

// ChunkBytes is the size of every chunk of a stream except the last, and the greatest
// size of a chunk.
const ChunkBytes = 4 << 20

// PutChunk stores 1 to ChunkBytes bytes and gives their BLAKE3-256. It is durable when it
// returns. A sweep that begins later removes it unless a Pin, a Manifest or a Writing
// holds it by then.
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
	if err := s.users.enter(); err != nil {
		return fmt.Errorf("checkpoint: put chunk %s: %w", h, err)
	}
	defer s.users.leave()
	s.guard.hold(h)
	defer s.guard.release(h)
	if err := s.storeChunk(h, data); err != nil {
		return fmt.Errorf("checkpoint: put chunk %s: %w", h, err)
	}
	return nil
}

// storeChunk needs the chunk held. A file that is already there counts only if its bytes
// are right, and its name is synced once more: the put that made it may not have got so
// far.
func (s *Store) storeChunk(h plan.Hash, data []byte) error {
	if len(data) == 0 || len(data) > ChunkBytes {
		return fmt.Errorf("%w: %d bytes, 1 to %d are accepted", ErrTooLarge, len(data), ChunkBytes)
	}
	path := s.chunkPath(h)
	if st, err := os.Stat(path); err == nil && st.Size() == int64(len(data)) {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
			return syncDir(filepath.Dir(path))
		}
	}
	size := int64(len(data))
	done, err := s.space.take(size, forChunks)
	if err != nil {
		return err
	}
	defer done()
	tmp, err := s.writeTemporary(data)
	if err == nil {
		err = s.place(tmp, path)
	}
	if err != nil && tmp != "" {
		_ = os.Remove(tmp) // Open removes what is left
	}
	return s.space.explain(err, size)
}

// writeTemporary writes and syncs a new file; its name is given even with an error.
func (s *Store) writeTemporary(data []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, "tmp"), "chunk-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return f.Name(), err
}

func (s *Store) place(tmp, path string) error {
	s.renames.Lock()
	err := os.Rename(tmp, path)
	s.renames.Unlock()
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// HasChunk tells whether a file of this name and a possible size is here; only Chunk and
// Verify look at its bytes.
func (s *Store) HasChunk(h plan.Hash) bool {
	size := s.chunkSize(h)
	return size > 0 && size <= ChunkBytes
}

// chunkSize is -1 when there is no such file.
func (s *Store) chunkSize(h plan.Hash) int64 {
	st, err := os.Stat(s.chunkPath(h))
	if err != nil || !st.Mode().IsRegular() {
		return -1
	}
	return st.Size()
}

// Chunk reads a chunk and checks its hash. The error wraps ErrNotFound, or ErrCorrupt:
// then the file has been moved to the quarantine, so that the chunk can be put again.
func (s *Store) Chunk(h plan.Hash) ([]byte, error) {
	if err := s.users.enter(); err != nil {
		return nil, fmt.Errorf("checkpoint: read chunk %s: %w", h, err)
	}
	defer s.users.leave()
	data, err := s.readChunk(h)
	if errors.Is(err, ErrCorrupt) {
		data, err = s.quarantine(h)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: read chunk %s: %w", h, err)
	}
	return data, nil
}

func (s *Store) readChunk(h plan.Hash) ([]byte, error) {
	f, err := os.Open(s.chunkPath(h))
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

// quarantine moves a damaged chunk aside. It looks once more with renames locked, since
// the chunk may have been put again meanwhile: then it is given.
func (s *Store) quarantine(h plan.Hash) ([]byte, error) {
	s.renames.Lock()
	defer s.renames.Unlock()
	data, err := s.readChunk(h)
	if !errors.Is(err, ErrCorrupt) {
		return data, err
	}
	to := s.quarantinePath(h)
	s.log.Error("damaged chunk moved aside", "chunk", h.String(), "to", to, "cause", err)
	if e := os.Rename(s.chunkPath(h), to); e != nil {
		return nil, fmt.Errorf("%w; moving it aside: %w", err, e)
	}
	return nil, fmt.Errorf("%w; moved to %s, fetch it again from another node", err, to)
}

func (s *Store) chunkPath(h plan.Hash) string {
	name := h.String()
	return filepath.Join(s.dir, "chunks", name[:2], name)
}

func (s *Store) quarantinePath(h plan.Hash) string {
	return filepath.Join(s.dir, "quarantine", h.String())
}
