//go:build unix

package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// sharing reports that several processes can read an index at once.
const sharing = true

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

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// freeBytes returns how much an unprivileged process may still write to the file system of path.
func freeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// noSpace reports whether the operating system refused a write for lack of room.
func noSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
