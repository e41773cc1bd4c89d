package checkpoint

import (
	"errors"
	"io/fs"
)

// Sentinels, wrapped by the errors of this package.
var (
	// ErrNotFound: the chunk, manifest or pin is not in this store.
	ErrNotFound = errors.New("not in this store")
	// ErrNoStore: Open was told that a store must be in the directory, and there is none.
	ErrNoStore = errors.New("no store in this folder")
	// ErrCorrupt: stored bytes do not match their checksum, or a record is malformed.
	ErrCorrupt = errors.New("corrupt")
	// ErrDiskFull: writing would use up the reserve of the file system.
	ErrDiskFull = errors.New("disk full")
	// ErrNotWritable: the folder or its file system is read-only to this user.
	ErrNotWritable = errors.New("nothing can be written")
	// ErrOccupied: the folder to make is there and not empty. It wraps fs.ErrExist.
	ErrOccupied error = occupied{}
	// ErrGone: the folder was removed or replaced while the store was open.
	ErrGone = errors.New("the folder was removed while it was in use")
	// ErrLocked: another process has the directory open.
	ErrLocked = errors.New("in use by another process")
	// ErrReadOnly: the store was opened to read alone.
	ErrReadOnly = errors.New("opened to read alone")
	// ErrStale: a newer generation's manifest of the same step is already there.
	ErrStale = errors.New("a newer generation is already stored")
	// ErrForeign: the manifest belongs to another run than the directory.
	ErrForeign = errors.New("belongs to another run")
	// ErrVersion: the store or a manifest has a format that this program does not read.
	ErrVersion = errors.New("written in another format")
	// ErrTooLarge: a chunk, key, value or batch is over its bound.
	ErrTooLarge = errors.New("too large")
	// ErrClosed: the store or the Writing has been closed.
	ErrClosed = errors.New("closed")
)

// occupied is fs.ErrExist of a folder, in words.
type occupied struct{}

func (occupied) Error() string { return "the folder is not empty" }

func (occupied) Unwrap() error { return fs.ErrExist }
