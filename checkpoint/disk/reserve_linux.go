package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve allocates blocks after the end of the file, which keeps its size.
func reserve(f *os.File, size, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}
