//go:build unix

package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// modes makes files (0755 and up: folders, by a slash) with exactly these modes in a folder with one of its own.
func modes(t *testing.T, dir fs.FileMode, files map[string]fs.FileMode) string {
	t.Helper()
	path := t.TempDir()
	for name, mode := range files {
		file := filepath.Join(path, name)
		if strings.HasSuffix(name, "/") {
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, dir); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMakePrivate(t *testing.T) {
	open := map[string]fs.FileMode{"owner.key": 0o644, "run.json.copy": 0o600, "store/": 0o755}
	for _, tt := range []struct {
		name  string
		mode  fs.FileMode
		files map[string]fs.FileMode
		after fs.FileMode
		says  []string // none: nothing
	}{
		{"new", 0o755, nil, 0o700, nil},
		{"a run's", 0o775, map[string]fs.FileMode{"owner.key": 0o600, "store/": 0o700, "node-0/": 0o700}, 0o700, nil},
		{"a run's with open files", 0o755, open, 0o700, []string{"could read owner.key, store", "until now"}},
		{"private already", 0o700, open, 0o700, nil},
		{"with other files", 0o755, map[string]fs.FileMode{"notes.txt": 0o644, "owner.key": 0o640}, 0o755, []string{"see what", "mode is 0755", "chmod 700"}},
		{"writable, with other files", 0o777, map[string]fs.FileMode{"notes.txt": 0o644}, 0o777, []string{"replace what", "mode is 0777"}},
		{"shared by many", 0o777 | fs.ModeSticky, nil, 0o777 | fs.ModeSticky, []string{"see what"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := modes(t, tt.mode, tt.files)
			told := MakePrivate(dir)
			for _, want := range append(tt.says, dir) {
				if tt.says != nil && !strings.Contains(told, want) {
					t.Errorf("%q lacks %q", told, want)
				}
			}
			if tt.says == nil && told != "" {
				t.Errorf("it says %q", told)
			}
			if got := rights(dir) &^ fs.ModeDir; got != tt.after {
				t.Errorf("the folder has mode %v, want %v", got, tt.after)
			}
			if open := openEntries(dir); len(open) > 0 && tt.mode != 0o700 {
				t.Errorf("still open: %v", open)
			}
			if st, err := os.Stat(filepath.Join(dir, "notes.txt")); err == nil && st.Mode() != 0o644 {
				t.Errorf("the mode of another's file has become %v", st.Mode())
			}
		})
	}
}

// TestMakePrivateFollowsNoLinks: what a link of such a name leads to keeps its mode.
func TestMakePrivateFollowsNoLinks(t *testing.T) {
	dir, elsewhere := modes(t, 0o755, nil), filepath.Join(modes(t, 0o755, map[string]fs.FileMode{"file": 0o644}), "file")
	if err := os.Symlink(elsewhere, filepath.Join(dir, "owner.key")); err != nil {
		t.Fatal(err)
	}
	MakePrivate(dir)
	if got := rights(elsewhere); got != 0o644 {
		t.Errorf("the link's target has mode %v", got)
	}
}
