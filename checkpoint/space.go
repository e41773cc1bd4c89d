package checkpoint

import (
	"fmt"
	"path/filepath"
	"sync"
)

// purpose says how much of the reserve a write must leave untouched.
type purpose int64

const (
	forChunks  purpose = 1 // leaves the whole reserve
	forIndex   purpose = 2 // leaves half: the consensus log goes on when chunks stop
	forDeletes purpose = 4 // leaves a quarter: room can still be made
)

// space answers whether a write fits beside the reserve, counting the writes under way.
type space struct {
	path    string
	reserve int64
	free    func(path string) (int64, error)

	mu       sync.Mutex // guards what follows
	inFlight int64
	wasFull  bool // something was refused
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
	keep := s.reserve/int64(p) + spare
	if free-s.inFlight-n < keep {
		s.wasFull = true
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
	wanted := "" // nothing: a look at the reserve
	if n > 0 {
		wanted = fmt.Sprintf("%d bytes wanted, ", n)
	}
	return fmt.Errorf("%w: %s%d free at %s, where %d stay in reserve; "+
		"free space there, keep fewer checkpoints or choose a directory on another disk",
		ErrDiskFull, wanted, free, s.path, keep)
}

// Room is the free space of a folder's file system before files were written there that are no
// store's.
type Room struct {
	path string
	free int64
}

// RoomAt looks at a folder.
func RoomAt(dir string) Room {
	free, _ := freeBytes(dir) // 0 where nothing tells
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole // what is written into "." is told better
	}
	return Room{dir, free}
}

// Explain turns the operating system's refusal of one of the writes that take needBytes in all
// into ErrDiskFull; other errors stay as they are.
func (r Room) Explain(err error, needBytes int64) error {
	if err == nil || !noSpace(err) {
		return err
	}
	return fmt.Errorf("%w: %.1f MB are needed at %s, where %.1f MB were free; free space there or name a folder on another disk (%w)",
		ErrDiskFull, float64(needBytes)/1e6, r.path, float64(r.free)/1e6, err)
}

// takeToClose is take for closing, which lasts long: it leaves the whole reserve, and fails
// when the disk was full before, since whoever fills it may be about to do so again.
func (s *space) takeToClose(n int64) (done func(), err error) {
	s.mu.Lock()
	wasFull := s.wasFull
	s.mu.Unlock()
	if wasFull {
		return nil, fmt.Errorf("%w: it was while the store was open", ErrDiskFull)
	}
	return s.take(n, forChunks)
}

// explain turns the operating system's refusal of a write of n bytes into ErrDiskFull.
func (s *space) explain(err error, n int64) error {
	if err == nil || !noSpace(err) {
		return err
	}
	s.mu.Lock()
	s.wasFull = true
	s.mu.Unlock()
	free, _ := s.free(s.path) // 0 when even that fails
	return fmt.Errorf("%w (%w)", s.full(n, free, s.reserve), err)
}
