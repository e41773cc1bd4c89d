package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// sharing reports that several processes can read an index at once: Badger cannot on Windows.
const sharing = false

// tryShare is for where processes share.
func tryShare(*os.File) error { return errNotShared }

// tryLock takes the exclusive lock of an open file; it goes when the file is closed or
// the process ends. The locked byte lies far behind the content, which stays readable.
func tryLock(f *os.File) error {
	behind := &windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, behind)
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

// syncDir does nothing: Windows has no sync of a directory, NTFS journals its names.
func syncDir(string) error { return nil }

// freeBytes returns how much the current user may still write to the file system of path.
func freeBytes(path string) (int64, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, &os.PathError{Op: "free space", Path: path, Err: err}
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &os.PathError{Op: "free space", Path: path, Err: err}
	}
	return int64(min(free, 1<<62)), nil
}

// noSpace reports whether the operating system refused a write for lack of room.
func noSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
