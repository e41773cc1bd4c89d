//go:build unix

package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the exclusive lock of an open file; it goes when the file is closed or
// the process ends.
func tryLock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// tryShare takes a lock that others may share but not have alone.
func tryShare(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// unlink removes a locked file and ends the lock, in this order: afterwards another may have it.
func unlink(f *os.File) {
	_ = os.Remove(f.Name()) // a file that stays is taken over by the next one
	_ = f.Close()           // nothing was written that counts
}
