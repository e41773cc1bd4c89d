package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pnode/checkpoint/disk"
)

// lockFile is the file in a folder that whoever has the folder holds a lock on.
const lockFile = "lock"

// Lock makes a folder, if it is not there, and takes it for this process until release, or until the
// process ends. Release leaves no trace of it, nor of the folder when nothing else is in it. The
// error wraps ErrLocked and says which process has it.
func Lock(dir string) (release func(), err error) {
	for {
		err := os.MkdirAll(dir, 0o777) // less the umask
		if st, e := os.Lstat(dir); errors.Is(err, fs.ErrExist) && (e != nil || st.IsDir()) {
			continue // it was there, and then was not: who had it removed the folder
		}
		if err != nil {
			return nil, notWritable(filepath.Dir(dir), err)
		}
		f, err := lockDir(dir, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the same
		}
		if err != nil {
			return nil, err
		}
		if !isAt(f, filepath.Join(dir, lockFile)) { // who had it removed the file: others lock a new one
			_ = f.Close() // nothing was written that counts
			continue
		}
		return func() {
			unlink(f)
			_ = os.Remove(dir) // only when it is empty
		}, nil
	}
}

// isAt reports whether a file is the one at path.
func isAt(f *os.File, path string) bool {
	is, err := f.Stat()
	at, errAt := os.Stat(path)
	return err == nil && errAt == nil && os.SameFile(is, at)
}

// lockDir takes the directory for this process, or shared with others that read. The lock file gets
// the process number, for the error message of the next one that tries; shared it names nobody, since
// who is there last need not be who wrote a number last. Who reads where nothing can be written needs
// no lock file: it returns nil.
func lockDir(dir string, shared bool) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if shared && disk.ReadOnly(err) {
		if f, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	try, remedy := tryLock, "stop it first or choose another directory"
	if shared {
		try, remedy = tryShare, "stop it, or wait until it has ended"
	}
	err = try(f)
	for until := time.Now().Add(readersPatience); errors.Is(err, ErrLocked) && !shared && !taken(path) && time.Now().Before(until); {
		time.Sleep(readersInterval)
		err = try(f)
	}
	if err != nil {
		if errors.Is(err, ErrLocked) {
			who := ""
			if pid := owner(f); pid != 0 {
				who = fmt.Sprintf(" (process %d)", pid)
			}
			err = fmt.Errorf("%w%s; %s", ErrLocked, who, remedy)
		}
		_ = f.Close() // nothing was written
		return nil, err
	}
	_ = f.Truncate(0)
	if !shared {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // a courtesy: on a full disk the lock holds without it
	}
	return f, nil
}

const (
	// readersPatience is how long a process that wants a directory alone waits for those that read: Peek does for a moment.
	readersPatience = time.Second
	readersInterval = 10 * time.Millisecond
)

// taken reports whether a process has the directory of a lock file alone.
func taken(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(tryShare(f), ErrLocked)
}

// owner returns the process that a lock file names; 0 where it names none.
func owner(f *os.File) int {
	b, err := io.ReadAll(io.LimitReader(f, 20))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// releaseInterval is how often AwaitRelease looks.
const releaseInterval = 50 * time.Millisecond

// AwaitRelease blocks until no process has the store in dir open, so that the next one can
// open it. A folder without a store is free.
func AwaitRelease(ctx context.Context, dir string) error {
	tick := time.NewTicker(releaseInterval)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = errors.Join(tryLock(f), f.Close())
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrLocked):
			return fmt.Errorf("checkpoint: look whether %s is free: %w", dir, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("checkpoint: wait for %s: %w", dir, ctx.Err())
		}
	}
}
