package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	// others are the rights of everyone but the owner of a file.
	others fs.FileMode = 0o077
	// maxNamed bounds the files that a sentence names.
	maxNamed = 4
)

// kept are patterns of the names that pnode gives to what it keeps in a run's folder.
var kept = []string{
	"identity.key*", "owner.key*", MembershipFile + "*", "epoch*", "ledger*", "run.json*", "losses.json*", "api.json*", "page.json*",
	"log.txt", "trace.json", RunFile, "emulate-*.yaml", "store", "tokens-*", "node-*",
	".*-[0-9]*", // a file that is being replaced
}

func isKept(name string) bool {
	return slices.ContainsFunc(kept, func(pattern string) bool {
		is, err := filepath.Match(pattern, name)
		return err == nil && is
	})
}

// OpenToOthers returns a sentence about the folder of a run that other users of this machine can open, with the remedy;
// empty where they cannot, or where files have no such rights (Windows).
func OpenToOthers(dir string) string {
	mode := rights(dir)
	if mode&others == 0 {
		return ""
	}
	can := "see what " + dir + " holds"
	if mode&0o022 != 0 && mode&fs.ModeSticky == 0 {
		can = "replace what " + dir + " holds"
	}
	if open := openEntries(dir); len(open) > 0 {
		can += ", and read " + strings.Join(open[:min(maxNamed, len(open))], ", ")
	}
	return fmt.Sprintf("other users of this machine can %s (its mode is %04o): chmod 700 %[3]s", can, mode.Perm(), dir)
}

// MakePrivate takes the rights of other users on what pnode keeps in a run's folder, and on the folder itself if it
// holds nothing else and is not shared by many (sticky, as /tmp is). It returns a warning where something could be read
// before, or the folder stays open; empty where all is well.
func MakePrivate(dir string) (warning string) {
	if rights(dir)&others == 0 { // nobody gets through to what is in it
		return ""
	}
	before := openEntries(dir)
	root, err := os.OpenRoot(dir) // a link in it leads nowhere else
	if err != nil {
		return "" // whoever works in it says why
	}
	defer func() { _ = root.Close() }()
	for _, name := range before {
		if st, err := root.Lstat(name); err == nil && !isLink(st) {
			_ = root.Chmod(name, st.Mode()&^others) // another user's file stays, and is told below
		}
	}
	if mode := rights(dir); mode&fs.ModeSticky == 0 && holdsNothingElse(dir) {
		_ = os.Chmod(dir, mode&^others)
	}
	if still := OpenToOthers(dir); still != "" {
		return "warning: " + still
	}
	if len(before) > 0 {
		return fmt.Sprintf("warning: other users of this machine could read %s in %s until now: their modes are set right; if one of them may have copied the keys, start a new run",
			strings.Join(before[:min(maxNamed, len(before))], ", "), dir)
	}
	return ""
}

// rights returns the mode of a file; 0 without one, and where modes mean nothing.
func rights(path string) fs.FileMode {
	st, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return 0
	}
	return st.Mode()
}

func isLink(st fs.FileInfo) bool { return st.Mode()&fs.ModeSymlink != 0 }

// openEntries returns the names of what pnode keeps in a folder and others may open.
func openEntries(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var open []string
	for _, e := range entries {
		if st, err := e.Info(); err == nil && isKept(e.Name()) && !isLink(st) && st.Mode()&others != 0 {
			open = append(open, e.Name())
		}
	}
	return open
}

// foreign returns the names in a folder where pnode keeps nothing, but for hidden ones and what a file system makes by itself.
func foreign(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it is new, or whoever works in it says why
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case isKept(name):
			return nil
		case strings.HasPrefix(name, "."), name == "lost+found":
		default:
			names = append(names, name)
		}
	}
	return names
}

// holdsNothingElse reports whether pnode keeps all that is in a folder.
func holdsNothingElse(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !isKept(e.Name()) })
}
