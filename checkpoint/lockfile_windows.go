package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock takes the exclusive lock of an open file; it goes when the file is closed or
// the process ends.
func tryLock(f *os.File) error { return lockFileEx(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// tryShare takes a lock that others may share but not have alone.
func tryShare(f *os.File) error { return lockFileEx(f, 0) }

// lockFileEx locks a byte that lies far after the content, which stays readable.
func lockFileEx(f *os.File, how uint32) error {
	after := &windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, after)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// unlink ends the lock on a file and removes it, which Windows refuses while another has it open.
func unlink(f *os.File) {
	_ = f.Close() // nothing was written that counts
	_ = os.Remove(f.Name())
}
