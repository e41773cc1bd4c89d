package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// lockDir takes the directory for this process and writes the process number into the
// lock file, for the error message of the next one that tries.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		if errors.Is(err, ErrLocked) {
			err = fmt.Errorf("%w%s; stop it first or choose another directory", ErrLocked, ownerOf(f))
		}
		_ = f.Close() // nothing was written
		return nil, err
	}
	// The number is a courtesy: on a full disk the lock holds without it.
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	return f, nil
}

// ownerOf names the process that wrote the lock file, if it can be read.
func ownerOf(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 20))
	pid := strings.TrimSpace(string(b))
	if err != nil || pid == "" || strings.Trim(pid, "0123456789") != "" {
		return ""
	}
	return " (process " + pid + ")"
}
