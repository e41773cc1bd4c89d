package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"pnode/checkpoint/disk"
	"pnode/checkpoint/journal"
	"pnode/planner/plan"
)

const (
	// DefaultReserveBytes is the free space that is never used unless Options say otherwise.
	DefaultReserveBytes = plan.DiskReserveBytes
	// minReserveBytes is the least reserve: Badger flushes and compacts tables of 8 MiB
	// while the store does other things, and must find room for a few of them.
	minReserveBytes = 64 << 20
)

// Options of a store; the zero value is usable.
type Options struct {
	// Self is the node's peer ID. Chunks of layers whose holders do not include it need
	// not be here. When empty, every chunk of a manifest must be.
	Self plan.PeerID
	// Coming reports whether a pin is of chunks that are being fetched, and may be absent; nil is none.
	Coming func(pin string) bool
	// ReserveBytes of the file system stay free: chunks stop at the whole reserve, manifests at half. Pins and buckets
	// may use it up. 0 is DefaultReserveBytes.
	ReserveBytes int64
	// MustExist makes Open fail with ErrNoStore, and create nothing, where there is no store
	// yet: what a node needs that comes back to its run.
	MustExist bool
	// ReadOnly opens a store that is there to read from it, beside others that do, and writes nothing, however the store
	// was left. Where the index is damaged manifests and chunks can be read all the same.
	ReadOnly bool
	// Logger gets damage; nil discards it.
	Logger *slog.Logger
	// Disk changes the store's files; tests have it stop, fail and wait.
	Disk disk.Disk

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
		o.freeBytes = disk.FreeBytes
	}
	return nil
}

// Store is one directory of chunks, manifests, pins and buckets. Its methods may be
// called from any number of goroutines.
type Store struct {
	dir     string
	self    plan.PeerID
	coming  func(pin string) bool
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

func newStore(dir string, o Options) *Store {
	space := &space{path: dir, reserve: o.ReserveBytes, free: o.freeBytes}
	if o.ReadOnly { // all that writes chunks and manifests asks for space first
		space.free = func(string) (int64, error) { return 0, ErrReadOnly }
	}
	return &Store{
		dir: dir, self: o.Self, coming: o.Coming, reads: o.ReadOnly, log: o.Logger,
		chunks:  chunkFolder{dir: dir, disk: o.Disk, reads: o.ReadOnly, space: space, log: o.Logger},
		catalog: catalog{index: &index{folder: filepath.Join(dir, "index"), disk: o.Disk, space: space, log: o.Logger}, dir: dir},
	}
}

// Open opens or, unless Options say otherwise, creates the store in dir and removes what an
// interrupted process left half-written. Errors wrap ErrLocked, ErrNoStore, ErrDiskFull, ErrNotWritable,
// ErrVersion or ErrCorrupt where these are the cause.
func Open(dir string, o Options) (*Store, error) {
	err := o.fill()
	var s *Store
	if err == nil {
		s = newStore(dir, o)
		if o.ReadOnly {
			err = s.openToRead()
		} else {
			err = s.open(o.MustExist)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: open %s: %w", dir, err)
	}
	return s, nil
}

// openToRead opens the store for one of several readers. While it is open nobody can open it to write.
func (s *Store) openToRead() (err error) {
	if err := s.exists(); err != nil {
		return err
	}
	if s.lock, err = lockDir(s.dir, true); err != nil {
		return err
	}
	_, err = checkFormat(s.dir)
	if err == nil {
		err = s.catalog.open(journal.Options{ReadOnly: true})
	}
	if steps, unread := s.catalog.filed(); err == nil && (unread != nil || len(steps) == 0) {
		err = s.catalog.broken // nothing to read
	}
	if err != nil {
		s.unlock()
	}
	return err
}

// open opens the store for this process alone, and creates it where there is none unless it must exist.
func (s *Store) open(mustExist bool) (err error) {
	filed, err := s.catalog.filed()
	if err != nil {
		return err
	}
	if mustExist {
		if err := s.exists(); err != nil {
			return err
		}
	} else if err := s.catalog.space.explain(s.chunks.disk.MakeFolder(s.dir), 0); err != nil {
		return err
	}
	if s.lock, err = lockDir(s.dir, false); err != nil {
		return s.catalog.space.explain(err, 0)
	}
	defer func() {
		if err != nil {
			s.unlock()
		}
	}()
	missing, err := checkFormat(s.dir)
	if err != nil {
		return err
	}
	// An empty index beside manifests would forget what others count on.
	o := journal.Options{Create: !mustExist && len(filed) == 0}
	if o.Create {
		if err := s.lay(missing); err != nil {
			return err
		}
	}
	if err := s.catalog.open(o); err != nil {
		return err
	}
	if err := errors.Join(s.lay(missing), s.catalog.note(filed...)); err != nil {
		return errors.Join(err, s.catalog.close())
	}
	s.failed, s.closing = make(chan error, 1), make(chan struct{})
	s.watching.Go(s.watch)
	return nil
}

// lay makes the store's folders, and its format file where that is missing.
func (s *Store) lay(missing bool) error {
	err := s.chunks.makeDirs()
	if err == nil && missing {
		err = writeFormat(s.dir, s.chunks.disk)
	}
	return s.catalog.space.explain(err, 0)
}

// exists fails with ErrNoStore where there is no folder, or an empty one.
func (s *Store) exists() error {
	entries, err := os.ReadDir(s.dir)
	if len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrNoStore, remedy)
}

// IndexDamage returns what is damaged in the index of a store that is open to read alone, and what helps; nil for nothing. A
// store that is open to write has set it right. The error does not wrap ErrCorrupt where no more files could be opened.
func (s *Store) IndexDamage() error {
	if !s.reads || s.catalog.broken != nil {
		return s.catalog.broken
	}
	err := s.catalog.journal.Damage()
	if tree := checkTreeSeal(s.catalog.folder, s.catalog.journal.Position()); !errors.Is(tree, errUnsealed) {
		err = errors.Join(err, tree)
	}
	missing, unread := checkFormat(s.dir)
	if missing || unread != nil {
		err = errors.Join(err, fmt.Errorf("the file %s does not say the store's format", formatFile))
	}
	if few := errors.Join(err, unread); disk.NoFiles(few) {
		return fmt.Errorf("index: %w", few) // nothing is known of it
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: index: %w; nothing is lost, and the next start makes it again", ErrCorrupt, err)
}

// unlock gives the folder back to others.
func (s *Store) unlock() {
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written that counts
	}
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

// Failed returns a channel of one error, which wraps ErrGone. It comes when the store's folder was removed or replaced: nothing
// can be kept any more, and a node should end. A store opened to read alone has none.
func (s *Store) Failed() <-chan error { return s.failed }

// Close waits for the calls in progress, closes the index and unlocks the directory. Later calls
// return ErrClosed; closing twice is harmless.
func (s *Store) Close() error {
	if !s.users.close() {
		return nil
	}
	if !s.reads {
		close(s.closing)
		s.watching.Wait()
	}
	err := s.catalog.close()
	s.unlock()
	if err != nil {
		return fmt.Errorf("checkpoint: close %s: %w", s.dir, err)
	}
	return nil
}

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
