package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// partialSuffix is behind the name of the folder that another is made in.
const partialSuffix = ".partial"

// InNewFolder has fill make a folder, and gives it the name dir once it is complete; a folder that
// is there must be empty. It is made within dir.partial, by one process at a time: what one that was
// killed left there is removed, and other people's files are not. The error wraps ErrOccupied where
// there are some, ErrLocked while another process makes dir, or is that of fill or of the system.
func InNewFolder(dir string, fill func(tmp string) error) (err error) {
	dir = filepath.Clean(dir)
	work := dir + partialSuffix
	tmp := filepath.Join(work, filepath.Base(dir))
	if err := errors.Join(vacant(dir), ours(work, filepath.Base(tmp))); err != nil {
		return err
	}
	release, err := Lock(work)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(tmp))
		release()
	}()
	if err := vacant(dir); err != nil { // another process may have made it meanwhile
		return err
	}
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o777); err != nil { // less the umask
		return err
	}
	if err := fill(tmp); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // empty: a rename would not replace it everywhere
		return err
	}
	return os.Rename(tmp, dir)
}

// vacant refuses a folder with anything in it.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%w: it holds %s; name a new or an empty one", ErrOccupied, entries[0].Name())
	}
	return nil
}

// ours refuses a folder to work in with anything but what InNewFolder leaves there when it is
// killed: a lock and the folder `name`, never the second alone.
func ours(work, name string) error {
	entries, err := os.ReadDir(work)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	locked := false
	for _, e := range entries {
		locked = locked || e.Name() == lockFile
	}
	for _, e := range entries {
		if !locked || e.Name() != lockFile && e.Name() != name {
			return fmt.Errorf("%w: the folder is made in %s, which holds %s; move that away", ErrOccupied, work, e.Name())
		}
	}
	return nil
}
