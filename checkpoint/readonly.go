package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errNotShared: the store cannot be opened by several processes at once.
var errNotShared = errors.New("not to be shared")

// openShared opens a store that was closed in order for one of several readers. While it is open
// nobody can open it to write.
func openShared(dir string, o Options) (*Store, error) {
	if !sharing {
		return nil, errNotShared
	}
	// All that writes asks for space first.
	space := &space{path: dir, reserve: o.ReserveBytes, free: func(string) (int64, error) { return 0, ErrReadOnly }}
	s := newStore(dir, o, space)
	s.reads = true
	var err error
	if s.lock, err = lockDir(dir, true); err != nil {
		return nil, err
	}
	if _, err = checkFormat(dir); err == nil {
		err = closedInOrder(dir)
	}
	if err == nil {
		s.catalog.index, err = openIndex(filepath.Join(dir, "index"), true, o.Logger)
	}
	if err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

// closedInOrder fails with errNotShared where Badger's log of its last writes is there, which it
// removes when it closes, or chunks may be half-written.
func closedInOrder(dir string) error {
	for folder, left := range map[string]string{"index": ".mem", "tmp": ""} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), left) }) {
			return errNotShared
		}
	}
	return nil
}
