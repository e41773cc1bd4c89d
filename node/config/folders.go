package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pnode/node/plain"
	"pnode/swarm/twofold"
)

const (
	// runs is the folder of DefaultDir that holds one folder a run.
	runs = "runs"
	// InviteEnv is the environment variable that may hold the invite of "pnode join": unlike a command line it is not shown to
	// other users of the machine.
	InviteEnv = "PNODE_INVITE"
	// AnnounceEnv stands in for --announce.
	AnnounceEnv = "PNODE_ANNOUNCE"
	// NoticesEnv stands in for --notices.
	NoticesEnv = "PNODE_NOTICES"
	// MembershipFile is in a node's folder from the moment that it belongs to a run.
	MembershipFile = "membership.json"
	// RunFile is in the folder of a run of local nodes and holds their settings.
	RunFile = "run.yaml"
)

// DefaultDir returns pnode's folder among the user's data: $XDG_DATA_HOME/pnode or
// ~/.local/share/pnode, ~/Library/Application Support/pnode on macOS,
// %LocalAppData%\pnode on Windows.
func DefaultDir() (string, error) {
	base, err := dataHome(runtime.GOOS, os.Getenv, os.UserHomeDir)
	if err != nil {
		return "", fmt.Errorf("config: find the user's data folder: %w; set it, or name a folder with --dir", err)
	}
	return filepath.Join(base, "pnode"), nil
}

// StateDir returns the folder for what pnode remembers of this user's machine: $XDG_STATE_HOME/pnode or ~/.local/state/pnode, and
// DefaultDir on macOS and Windows, which have no other.
func StateDir() (string, error) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return DefaultDir()
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // the specification ignores others
		return filepath.Join(dir, "pnode"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("config: find the user's folder for state: %w", err)
	}
	return filepath.Join(home, ".local", "state", "pnode"), nil
}

// CacheDir returns the folder for models that can be downloaded again: $XDG_CACHE_HOME/pnode/models or ~/.cache/pnode/models,
// ~/Library/Caches/pnode/models on macOS, %LocalAppData%\pnode\models on Windows.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("config: find the user's cache folder: %w", err)
	}
	return filepath.Join(base, "pnode", "models"), nil
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

// Absolute returns a folder's path as it works from any other folder, too: commands with it are pasted elsewhere. None stays none.
func Absolute(dir string) string {
	if dir == "" {
		return ""
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir // the current folder is gone
}

// NewRunDir makes a new folder for a run under root (DefaultDir), named by the time so
// that names sort by age: runs/20060102-150405, with -02, -03 after it within one second.
func NewRunDir(root string, now time.Time) (string, error) {
	parent := filepath.Join(root, runs)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("config: make a run folder: %w; name a folder with --dir", err)
	}
	name := filepath.Join(parent, now.UTC().Format("20060102-150405"))
	dir := name
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("config: make a run folder: %w; name a folder with --dir", err)
		}
		dir = fmt.Sprintf("%s-%02d", name, n)
	}
}

// NodeDir returns the folder of a local node in its run's folder.
func NodeDir(dir string, index int) string {
	return filepath.Join(dir, "node-"+strconv.Itoa(index))
}

// NodeDirs returns the folders of the nodes of a run of local nodes in order, node-0 first;
// none when dir is no such run's.
func NodeDirs(dir string) []string {
	var dirs []string
	for i := range MaxLocal {
		if node := NodeDir(dir, i); exists(node) {
			dirs = append(dirs, node)
		}
	}
	return dirs
}

// Belongs reports whether the node in dir is in a run already and can come back by itself.
func Belongs(dir string) bool { return twofold.Exists(dir, MembershipFile) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// WayBack is the command that starts the node in dir again: an owner's node resumes the run, a member joins it, and one of a
// run of local nodes comes back with all of them.
func WayBack(dir string, owner bool) string {
	if run := filepath.Dir(dir); strings.HasPrefix(filepath.Base(dir), "node-") && exists(filepath.Join(run, RunFile)) {
		return "pnode train --resume --dir " + plain.Quote(run)
	}
	if owner {
		return "pnode train --resume --dir " + plain.Quote(dir)
	}
	return "pnode join --dir " + plain.Quote(dir)
}

// LocalNodes returns how many local nodes the run in dir has, 0 for the run of one node.
func LocalNodes(dir string) int {
	for n := MaxLocal; n > 0; n-- {
		if exists(NodeDir(dir, n-1)) {
			return n
		}
	}
	return 0
}

// holdings says which runs a folder holds; a start that failed leaves none.
type holdings struct {
	one   bool // that of one node
	local bool // that of several local nodes
}

func holds(dir string) holdings {
	return holdings{one: Belongs(dir), local: slices.ContainsFunc(NodeDirs(dir), Belongs)}
}

func (h holdings) any() bool { return h.one || h.local }

// RunDirs returns the folders of runs under root, newest first.
func RunDirs(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, runs))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("config: list runs: %w", err)
	}
	var dirs []string
	for _, e := range entries { // sorted by name, which is by time
		if dir := filepath.Join(root, runs, e.Name()); holds(dir).any() {
			dirs = append(dirs, dir)
		}
	}
	slices.Reverse(dirs)
	return dirs, nil
}

// LatestRun returns the newest folder of a run under root; the error wraps ErrNoRun.
func LatestRun(root string) (string, error) {
	dirs, err := RunDirs(root)
	if err != nil {
		return "", err
	}
	if len(dirs) == 0 {
		return "", fmt.Errorf("%w in %s: start one with `pnode train`, enter one with `pnode join INVITE`, or name its folder with --dir", ErrNoRun, filepath.Join(root, runs))
	}
	return dirs[0], nil
}

// Existing returns the folder of a run that is there already: dir, or without it the newest under DefaultDir. The error
// wraps ErrNoRun when it holds none.
func Existing(dir string) (string, error) {
	if dir == "" {
		root, err := DefaultDir()
		if err != nil {
			return "", err
		}
		return LatestRun(root)
	}
	if !holds(dir).any() {
		if _, err := os.ReadDir(dir); errors.Is(err, os.ErrPermission) {
			return "", fmt.Errorf("config: look into the folder: %w; make it readable for this user, or name another with --dir", err)
		}
		return "", fmt.Errorf("%w in %s: start one with `pnode train`, enter one with `pnode join INVITE`, or name another folder with --dir", ErrNoRun, dir)
	}
	return dir, nil
}
