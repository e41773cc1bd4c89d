package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
)

// others are the rights of everyone but the owner of a file.
const others fs.FileMode = 0o077

// makePrivate takes the rights of other users on a store's folders, and on the index's files: Badger
// makes most of them as the umask says. Chunks have mode 0600 from the start. What belongs to another
// user, or lies on a file system without such rights, stays as it is.
func makePrivate(dir string) error {
	paths := []string{dir}
	for _, name := range []string{"tmp", "quarantine", "chunks", "index"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	files, err := os.ReadDir(filepath.Join(dir, "index"))
	if err != nil {
		return err
	}
	for _, f := range files {
		paths = append(paths, filepath.Join(dir, "index", f.Name()))
	}
	for _, path := range paths {
		if st, err := os.Lstat(path); err == nil && st.Mode()&others != 0 && st.Mode()&fs.ModeSymlink == 0 {
			_ = os.Chmod(path, st.Mode()&^others)
		}
	}
	return nil
}
