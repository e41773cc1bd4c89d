package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// runs is the folder of DefaultDir that holds one folder a run.
const runs = "runs"

// MembershipFile is in a node's folder from the moment that it belongs to a run.
const MembershipFile = "membership.json"

// DefaultDir is pnode's folder among the user's data: $XDG_DATA_HOME/pnode or
// ~/.local/share/pnode, ~/Library/Application Support/pnode on macOS,
// %LocalAppData%\pnode on Windows.
func DefaultDir() (string, error) {
	base, err := dataHome(runtime.GOOS, os.Getenv, os.UserHomeDir)
	if err != nil {
		return "", fmt.Errorf("config: find the user's data folder: %w; name a folder with --dir", err)
	}
	return filepath.Join(base, "pnode"), nil
}

func dataHome(goos string, getenv func(string) string, home func() (string, error)) (string, error) {
	switch goos {
	case "windows":
		if dir := getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", errors.New("%LocalAppData% is not set")
	case "darwin", "ios":
		h, err := home()
		return filepath.Join(h, "Library", "Application Support"), err
	}
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // the specification ignores others
		return dir, nil
	}
	h, err := home()
	return filepath.Join(h, ".local", "share"), err
}

// NewRunDir makes a new folder for a run under root (DefaultDir), named by the time so
// that names sort by age: runs/20060102-150405, with -02, -03 after it within one second.
func NewRunDir(root string, now time.Time) (string, error) {
	parent := filepath.Join(root, runs)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("config: make a run folder: %w", err)
	}
	name := filepath.Join(parent, now.UTC().Format("20060102-150405"))
	dir := name
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("config: make a run folder: %w", err)
		}
		dir = fmt.Sprintf("%s-%02d", name, n)
	}
}

// holdsRun tells whether dir is the folder of a node that belongs to a run, or of several
// local nodes of which the first does. A start that failed leaves a folder without.
func holdsRun(dir string) bool {
	for _, file := range []string{MembershipFile, filepath.Join("node-0", MembershipFile)} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return true
		}
	}
	return false
}

// RunDirs are the folders of runs under root, newest first.
func RunDirs(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, runs))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("config: list runs: %w", err)
	}
	var dirs []string
	for _, e := range entries { // sorted by name, which is by time
		if dir := filepath.Join(root, runs, e.Name()); holdsRun(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Reverse(dirs)
	return dirs, nil
}

// LatestRun is the newest folder of a run under root; the error wraps ErrNoRun.
func LatestRun(root string) (string, error) {
	dirs, err := RunDirs(root)
	if err != nil {
		return "", err
	}
	if len(dirs) == 0 {
		return "", fmt.Errorf("%w in %s: start one with `pnode train`, or name its folder with --dir", ErrNoRun, filepath.Join(root, runs))
	}
	return dirs[0], nil
}

// RunDir is the folder of the run that c describes: Dir when given; else the newest run's
// to resume, or a new one, under DefaultDir.
func (c Config) RunDir(now time.Time) (string, error) {
	if c.Dir != "" {
		return c.Dir, nil
	}
	root, err := DefaultDir()
	if err != nil {
		return "", err
	}
	if c.Resume {
		return LatestRun(root)
	}
	return NewRunDir(root, now)
}
