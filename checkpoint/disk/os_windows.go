package disk

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// syncFolder does nothing: Windows has no sync of a folder, NTFS journals its names.
func syncFolder(string) error { return nil }

// FreeBytes returns how much the current user may still write to the file system of path.
func FreeBytes(path string) (int64, error) {
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

// NoFiles reports whether a file was not opened since the process has too many open.
func NoFiles(err error) bool {
	return errors.Is(err, windows.ERROR_TOO_MANY_OPEN_FILES) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// NoSpace reports whether the operating system refused a write for lack of room.
func NoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

// ReadOnly reports whether the operating system refused a write because nothing may be written there.
func ReadOnly(err error) bool {
	return errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_WRITE_PROTECT)
}
