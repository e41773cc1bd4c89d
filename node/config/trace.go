package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// TryTrace opens the file of a timeline for writing, to explain before the data is read
// what cannot work. It leaves things as they were: a file keeps what it holds, and a pipe
// is not opened, whose reader would take the end of this for that of the timeline. The
// error wraps ErrInvalid.
func TryTrace(path string) error {
	if path == "" {
		return nil
	}
	st, err := os.Stat(path)
	if err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		return nil
	}
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err // without the path, which is named already
		}
		return fmt.Errorf("%w: trace is %s: %w; name a file in a folder that is there and can be written to", ErrInvalid, path, err)
	}
	err = f.Close()
	if isNew {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
