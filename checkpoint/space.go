package checkpoint

import (
	"fmt"
	"path/filepath"
	"sync"

	"pnode/checkpoint/disk"
	"pnode/planner/plan"
)

// purpose says how much of the reserve a write must leave untouched.
type purpose int64

const (
	forChunks    purpose = 1 // leaves the whole reserve
	forManifests purpose = 2 // leaves half: a checkpoint whose chunks are there can be committed
	// forTree leaves half, too: Badger maps its files into memory, and a full disk would kill the process rather than return an
	// error.
	forTree purpose = 2
)

// space answers whether a write fits beside the reserve, counting the writes under way. The journal does not ask: the reserve
// is for it, and it takes the operating system's word that the disk is full.
type space struct {
	path    string
	reserve int64
	free    func(path string) (int64, error)

	mu       sync.Mutex // guards inFlight
	inFlight int64
}

// take claims n bytes until done is called. The error wraps ErrDiskFull.
func (s *space) take(n int64, p purpose) (done func(), err error) {
	return s.takeBeside(0, n, p)
}

// takeBeside is take that leaves spare bytes free on top of the reserve.
func (s *space) takeBeside(spare, n int64, p purpose) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, err := s.free(s.path)
	if err != nil {
		return nil, err
	}
	if keep := s.reserve/int64(p) + spare; free-s.inFlight-n < keep {
		return nil, s.full(n, free, keep)
	}
	s.inFlight += n
	return func() {
		s.mu.Lock()
		s.inFlight -= n
		s.mu.Unlock()
	}, nil
}

func (s *space) full(n, free, keep int64) error {
	return fmt.Errorf("%w: %s wanted, %s free at %s, where %s stay in reserve; "+
		"free %s there, keep fewer checkpoints (--keep) or name a folder on another disk (--dir)",
		ErrDiskFull, plan.Size(n), plan.Size(free), s.path, plan.Size(keep), plan.Size(max(n, n+keep-free)))
}

// explain turns the operating system's refusal of a write of n bytes into ErrDiskFull, or into ErrNotWritable.
func (s *space) explain(err error, n int64) error {
	switch {
	case err == nil:
		return nil
	case disk.NoSpace(err):
		free, _ := s.free(s.path) // 0 when even that fails
		return fmt.Errorf("%w (%w)", s.full(n, free, s.reserve), err)
	}
	return notWritable(s.path, err)
}

// notWritable turns the refusal of a write where this user may not into ErrNotWritable.
func notWritable(path string, err error) error {
	if !disk.ReadOnly(err) {
		return err
	}
	return fmt.Errorf("%w: %s: give this user the right to write there, or mount the disk to write (%w)", ErrNotWritable, path, err)
}

// Room is the free space of a folder's file system before files were written there that are no
// store's.
type Room struct {
	path string
	free int64
}

// RoomAt looks at a folder.
func RoomAt(dir string) Room {
	free, _ := disk.FreeBytes(dir) // 0 where nothing tells
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole // what is written into "." is told better
	}
	return Room{dir, free}
}

// Explain turns the operating system's refusal of one of the writes that take needBytes in all
// into ErrDiskFull; other errors stay as they are.
func (r Room) Explain(err error, needBytes int64) error {
	if err == nil || !disk.NoSpace(err) {
		return err
	}
	return fmt.Errorf("%w: %.1f MB are needed at %s, where %.1f MB were free; free space there or name a folder on another disk (%w)",
		ErrDiskFull, float64(needBytes)/1e6, r.path, float64(r.free)/1e6, err)
}
