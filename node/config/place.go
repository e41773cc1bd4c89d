package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pnode/node/plain"
)

// Place is the folder in which a start works.
type Place struct {
	Dir string
	// made are the folders that this start made, Dir first, then those above it.
	made []string
}

// Place finds the folder of the run that c describes, and makes it for a new run: Dir when
// given; else a new one under DefaultDir, or the newest run's to resume. What is there
// already must fit, see CheckDir; a new run goes into no folder of other things.
func (c Config) Place(now time.Time) (Place, error) {
	c.Dir = Absolute(c.Dir)
	if c.Resume {
		dir, err := Existing(c.Dir)
		if err != nil {
			return Place{}, err
		}
		c.Dir = dir
		return Place{Dir: dir}, c.CheckDir()
	}
	if c.Dir != "" {
		if err := c.CheckDir(); err != nil {
			return Place{}, err
		}
		if err := c.refuseForeign(); err != nil {
			return Place{}, err
		}
	}
	return NewPlace(c.Dir, now)
}

// refuseForeign refuses a folder of files among which pnode keeps none: keys and a store would be strewn between them. The error wraps
// ErrInvalid.
func (c Config) refuseForeign() error {
	names := foreign(c.Dir)
	if len(names) == 0 {
		return nil
	}
	named := strings.Join(names[:min(maxNamed, len(names))], ", ")
	if more := len(names) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return c.refuse("dir", c.Dir, fmt.Errorf("the folder is not empty: it holds %s; name a new or an empty one", named))
}

// CheckDir refuses a folder whose run is not the one that c is about: a run of one node and
// a run of local nodes do not share a folder, and a new run takes none that holds another.
// The error wraps ErrDirTaken, ErrNoRun or ErrInvalid.
func (c Config) CheckDir() error {
	h := holds(c.Dir)
	switch {
	case !c.Resume && h.any():
		return fmt.Errorf("%w: %s: go on with it with `pnode train --resume --dir %s`, or name another folder with --dir", ErrDirTaken, c.Dir, plain.Quote(c.Dir))
	case !c.Resume:
		return nil
	case h.one && h.local:
		return fmt.Errorf("%w, and a second one, of local nodes: %s: move node-* and %s to a folder of their own, then resume each by its --dir",
			ErrDirTaken, c.Dir, RunFile)
	case !h.any():
		return fmt.Errorf("%w in %s: start one with `pnode train`, or name its folder with --dir", ErrNoRun, c.Dir)
	case c.Local > 0 && h.one:
		return c.refuse("local", c.Local, fmt.Errorf("%s holds the run of one node: leave --local out", c.Dir))
	}
	return nil
}

// JoinPlace finds the folder of a node that joins, and makes it: dir when given, else a new
// one under DefaultDir; without an invite that of the run to come back to. The folder of a
// run of local nodes is refused.
func JoinPlace(dir string, invited bool, now time.Time) (Place, error) {
	dir = Absolute(dir)
	if !invited {
		var err error
		if dir, err = Existing(dir); err != nil {
			return Place{}, err
		}
	}
	if dir != "" && len(NodeDirs(dir)) > 0 {
		return Place{}, fmt.Errorf("%w, of local nodes: %s: go on with it with `pnode train --resume --dir %s`, or name another folder with --dir", ErrDirTaken, dir, plain.Quote(dir))
	}
	if !invited {
		return Place{Dir: dir}, nil
	}
	if dir != "" {
		if err := (Config{Dir: dir}).refuseForeign(); err != nil {
			return Place{}, err
		}
	}
	return NewPlace(dir, now)
}

// NewPlace makes a folder: dir, or without it a new one under DefaultDir. It may be there.
func NewPlace(dir string, now time.Time) (Place, error) {
	if dir == "" {
		root, err := DefaultDir()
		if err != nil {
			return Place{}, err
		}
		dir, err := NewRunDir(root, now)
		return Place{Dir: dir, made: []string{dir}}, err
	}
	p := Place{Dir: dir}
	for missing := filepath.Clean(dir); !exists(missing); missing = filepath.Dir(missing) {
		p.made = append(p.made, missing)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Place{}, fmt.Errorf("config: make the run's folder: %w; choose another with --dir", err)
	}
	if err := tryWrite(dir); err != nil {
		return Place{}, errors.Join(err, p.Tidy())
	}
	return p, nil
}

// tryWrite explains before anything is made in a folder why nothing can be.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".try-*")
	if err == nil {
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return nil // such as a full disk: whoever writes there says so
	}
	if at := (*os.PathError)(nil); errors.As(err, &at) {
		err = at.Err // without the name of what was tried
	}
	return fmt.Errorf("config: write into the run's folder %s: %w; give this user the right to write there, or name another folder with --dir", dir, err)
}

// Tidy removes the folder again when this start made it and no run came of it, so that a
// refused start leaves nothing behind.
func (p Place) Tidy() error {
	if len(p.made) == 0 || holds(p.Dir).any() {
		return nil
	}
	if err := os.RemoveAll(p.Dir); err != nil {
		return fmt.Errorf("config: remove the folder of a run that did not begin: %w", err)
	}
	for _, above := range p.made[1:] {
		if err := os.Remove(above); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil // others use it by now
		}
	}
	return nil
}
