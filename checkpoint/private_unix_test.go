//go:build unix

package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStoreIsPrivate: whatever the umask.
func TestStoreIsPrivate(t *testing.T) {
	before := syscall.Umask(0) // of the whole process: no test of this package runs beside this one
	defer syscall.Umask(before)
	dir := filepath.Join(t.TempDir(), "store")
	for round := range 2 {
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.PutChunk([]byte{byte(round)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Bucket("b").Write([]Op{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			st, statErr := e.Info()
			if err != nil || statErr != nil {
				return err
			}
			if filepath.Base(filepath.Dir(path)) == treeFolder { // nobody else gets into that
				return nil
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if st.Mode().Perm() != want {
				t.Errorf("round %d: %s has mode %v", round, path, st.Mode())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatCannotBeWrittenNamesTheRemedy: a folder that another is made in, not only a store.
func TestWhatCannotBeWrittenNamesTheRemedy(t *testing.T) {
	refused := &fs.PathError{Op: "mkdir", Path: "/ro/out.partial", Err: syscall.EROFS}
	if err := notWritable("/ro", refused); !errors.Is(err, ErrNotWritable) || !errors.Is(err, refused) || !strings.Contains(err.Error(), "/ro: give this user the right to write there") {
		t.Error(err)
	}
	if err := notWritable("/ro", fs.ErrExist); err != fs.ErrExist {
		t.Error(err)
	}
	if err := notWritable("/ro", nil); err != nil {
		t.Error(err)
	}
}
