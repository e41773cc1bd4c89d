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
	DefaultReserveBytes = plan.DiskReserveBytes
	// minReserveBytes is the least reserve: Badger flushes and compacts tables of 8 MiB
	// behind the store's back, and must find room for a few of them.
	minReserveBytes = 64 << 20
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
	if o.ReserveBytes < minReserveBytes {
		return fmt.Errorf("reserve of %d bytes, at least %d are accepted", o.ReserveBytes, minReserveBytes)
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
	dir     string
	self    plan.PeerID
	reads   bool // and writes nothing
	log     *slog.Logger
	lock    *os.File
	chunks  chunkFolder
	catalog catalog
	guard   guard
	users   users

	// failed gets one error from watch, closing ends it; both are nil where the store only reads.
	failed   chan error
	closing  chan struct{}
	watching sync.WaitGroup

	commits sync.Mutex // guards reading and then writing manifests
	sweeps  sync.Mutex // held by the one running sweep
}

func newStore(dir string, o Options, space *space) *Store {
	return &Store{
		dir: dir, self: o.Self, log: o.Logger,
		chunks: chunkFolder{dir: dir, space: space, log: o.Logger}, catalog: catalog{space: space},
	}
}

// Open opens or, unless Options say otherwise, creates the store in dir and removes what an
// interrupted process left half-written. Errors wrap ErrLocked, ErrNoStore, ErrDiskFull, ErrVersion
// or ErrCorrupt where these are the cause.
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
	space := &space{path: dir, reserve: o.ReserveBytes, free: o.freeBytes}
	s := newStore(dir, o, space)
	if s.lock, err = lockDir(dir, false); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.lock.Close() // the first error is the one to return
		}
	}()
	done, err := space.take(indexBytesAtOpen, forDeletes)
	if err != nil {
		return nil, err
	}
	defer done()
	missing, err := checkFormat(dir)
	if err != nil {
		return nil, err
	}
	if err := s.chunks.makeDirs(); err != nil {
		return nil, err
	}
	if missing {
		if err := writeFormat(dir); err != nil {
			return nil, space.explain(err, 0)
		}
	}
	if s.catalog.index, err = openIndex(filepath.Join(dir, "index"), false, o.Logger); err != nil {
		return nil, err
	}
	if err := makePrivate(dir); err != nil {
		return nil, errors.Join(err, s.catalog.db.Close())
	}
	s.failed, s.closing = make(chan error, 1), make(chan struct{})
	s.watching.Go(s.watch)
	return s, nil
}

// during runs f as a call in progress, and names the operation in its error.
func (s *Store) during(operation string, f func() error) error {
	err := s.users.enter()
	if err == nil {
		defer s.users.leave()
		err = f()
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", operation, err)
	}
	return nil
}

// Failed returns a channel of one error, which wraps ErrDiskFull. It comes when the free space falls
// below what the index needs, whoever used it up. Manifests and buckets cannot be written then: a
// node should end while everything it has said to be durable still is. A store opened to read alone
// has none.
func (s *Store) Failed() <-chan error { return s.failed }

// Close waits for the calls in progress, closes the index and unlocks the directory. Later calls
// return ErrClosed; closing twice is harmless. When the disk is or was full the index is left as a
// crash would leave it, which loses nothing, and the directory stays locked until the process ends.
func (s *Store) Close() error {
	if !s.users.close() {
		return nil
	}
	if !s.reads {
		close(s.closing)
		s.watching.Wait()
		done, err := s.catalog.space.takeToClose(flushBytesAtClose + s.catalog.tableBytes()) // it flushes, then compacts
		if errors.Is(err, ErrDiskFull) {
			s.log.Warn("the index is left to the next start instead of being closed", "cause", err)
			abandoned.Store(s, true)
			return nil
		}
		if err == nil {
			defer done()
		}
	}
	err := s.catalog.db.Close()
	if !s.reads {
		err = errors.Join(err, makePrivate(s.dir)) // Badger has made files since
	}
	if err = errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("checkpoint: close %s: %w", s.dir, err)
	}
	return nil
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

// close reports whether this call was the one that closed.
func (u *users) close() bool {
	u.mu.Lock()
	first := !u.closed
	u.closed = true
	u.mu.Unlock()
	u.running.Wait()
	return first
}
