package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"pnode/planner/plan"
)

const (
	// DefaultReserveBytes is the free space that is never used unless Options say otherwise.
	DefaultReserveBytes = 256 << 20
	// MinReserveBytes is the least reserve: Badger flushes and compacts tables of 8 MiB
	// behind the store's back, and must find room for a few of them.
	MinReserveBytes = 64 << 20
)

// Options of a store; the zero value is usable.
type Options struct {
	// Self is the node's peer ID. Chunks of layers whose holders do not include it need
	// not be here. When empty, every chunk of a manifest must be.
	Self plan.PeerID
	// ReserveBytes of the file system stay free: chunks stop at the whole reserve, index
	// writes at half, deletions at a quarter. 0 is DefaultReserveBytes.
	ReserveBytes int64
	// MustExist makes Open fail with ErrNoStore, and create nothing, where there is no store
	// yet: what a node needs that comes back to its run.
	MustExist bool
	// ReadOnly opens a store that is there to read from it, beside others that do, and refuses
	// writes. One that was not closed in order is opened to write all the same, by one process
	// alone: Badger has to replay its last writes first. So it is on Windows, always.
	ReadOnly bool
	// Logger gets damage and Badger's messages; nil discards them.
	Logger *slog.Logger

	// freeBytes replaces the question to the file system in tests.
	freeBytes func(path string) (int64, error)
}

func (o *Options) fill() error {
	if o.ReserveBytes == 0 {
		o.ReserveBytes = DefaultReserveBytes
	}
	if o.ReserveBytes < MinReserveBytes {
		return fmt.Errorf("reserve of %d bytes, at least %d are accepted", o.ReserveBytes, MinReserveBytes)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.freeBytes == nil {
		o.freeBytes = freeBytes
	}
	return nil
}

// Store is one directory of chunks, manifests, pins and buckets. Its methods may be
// called from any number of goroutines.
type Store struct {
	dir   string
	self  plan.PeerID
	reads bool // and writes nothing
	log   *slog.Logger
	lock  *os.File
	space *space
	index *index
	watch *watch
	guard guard
	users users

	renames sync.Mutex // guards changes of the file behind a chunk's name
	commits sync.Mutex // guards reading and then writing manifests
	sweeps  sync.Mutex // held by the one running sweep
}

// Open opens or, unless Options say otherwise, creates the store in dir and removes what an
// interrupted process left
// half-written. Errors wrap ErrLocked, ErrNoStore, ErrDiskFull or ErrCorrupt where these are the cause.
func Open(dir string, o Options) (*Store, error) {
	s, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: open %s: %w", dir, err)
	}
	return s, nil
}

func open(dir string, o Options) (_ *Store, err error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if o.MustExist || o.ReadOnly {
		if err := indexExists(filepath.Join(dir, "index")); err != nil {
			return nil, err
		}
	}
	if o.ReadOnly {
		s, err := openShared(dir, o)
		if !errors.Is(err, errNotShared) {
			return s, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, self: o.Self, log: o.Logger}
	s.space = &space{path: dir, reserve: o.ReserveBytes, free: o.freeBytes}
	if s.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.lock.Close() // the first error is the one to tell
		}
	}()
	done, err := s.space.take(indexBytesAtOpen, forDeletes)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.makeDirs(); err != nil {
		return nil, err
	}
	s.index, err = openIndex(filepath.Join(dir, "index"), false, o.Logger)
	if err != nil {
		return nil, err
	}
	s.watch = startWatch(s.lookAtSpace)
	return s, nil
}

// makeDirs creates the fixed directories and empties tmp. All fan-out directories are
// made here, so that only chunk files change later and one directory sync each is enough.
func (s *Store) makeDirs() error {
	for _, name := range []string{"tmp", "quarantine", "chunks", "index"} {
		if err := os.MkdirAll(filepath.Join(s.dir, name), 0o700); err != nil {
			return err
		}
	}
	for i := range 256 {
		if err := os.MkdirAll(filepath.Join(s.dir, "chunks", fmt.Sprintf("%02x", i)), 0o700); err != nil {
			return err
		}
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := os.Remove(filepath.Join(s.dir, "tmp", e.Name())); err != nil {
			return err
		}
	}
	if err := syncDir(filepath.Join(s.dir, "chunks")); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// Close waits for the calls in progress, closes the index and gives the directory free.
// Calls after it return ErrClosed; closing twice is harmless. When the disk is or was
// full the index is left as a crash would leave it, which loses nothing, and the directory
// stays locked until the process ends.
func (s *Store) Close() error {
	if !s.users.close() {
		return nil
	}
	closing := s.closeShared
	if !s.reads {
		s.watch.close()
		closing = s.close
	}
	if err := closing(); err != nil {
		return fmt.Errorf("checkpoint: close %s: %w", s.dir, err)
	}
	return nil
}

func (s *Store) close() error {
	done, err := s.space.takeToClose(s.index.bytesToClose())
	if errors.Is(err, ErrDiskFull) {
		s.log.Warn("the index is left to the next start instead of being closed", "cause", err)
		abandoned.Store(s, true)
		return nil
	}
	if err == nil {
		defer done()
	}
	return errors.Join(s.index.close(), s.lock.Close())
}

// abandoned are the stores that a full disk kept from closing: what is collected as
// garbage would give its lock free while Badger still runs.
var abandoned sync.Map // of *Store

// users counts the calls in progress, so that Close can wait for them. A call made inside
// another (in the function given to Scan) fails instead of waiting once Close has begun.
type users struct {
	mu      sync.Mutex // guards closed and Add against Wait
	closed  bool
	running sync.WaitGroup
}

func (u *users) enter() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return ErrClosed
	}
	u.running.Add(1)
	return nil
}

func (u *users) leave() { u.running.Done() }

// close tells whether this call was the one that closed.
func (u *users) close() bool {
	u.mu.Lock()
	first := !u.closed
	u.closed = true
	u.mu.Unlock()
	u.running.Wait()
	return first
}
