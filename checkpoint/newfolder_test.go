package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// write makes a file and its folders.
func write(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func fillWith(name string) func(string) error {
	return func(tmp string) error { return os.WriteFile(filepath.Join(tmp, name), nil, 0o600) }
}

// TestInNewFolderAfterOneThatWasKilled: what it left is taken away; while it lives, it is left alone.
func TestInNewFolderAfterOneThatWasKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	release, err := Lock(dir + partialSuffix)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir+partialSuffix, "out", "half")
	write(t, left)
	if err := InNewFolder(dir, fillWith("whole")); !errors.Is(err, ErrLocked) {
		t.Errorf("beside another: %v", err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("the other's work is gone: %v", err)
	}
	release()
	write(t, filepath.Join(dir+partialSuffix, lockFile)) // a process that is killed leaves its lock file
	if err := InNewFolder(dir, fillWith("whole")); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"whole"}) {
		t.Errorf("the folder holds %v", got)
	}
	if got := names(t, filepath.Dir(dir)); !slices.Equal(got, []string{"out"}) {
		t.Errorf("left behind: %v", got)
	}
}

// TestInNewFolderSparesOtherFiles: nothing is removed but what an earlier call made.
func TestInNewFolderSparesOtherFiles(t *testing.T) {
	for _, mine := range []string{"out/photo.jpg", "out.partial/out/photo.jpg", "out.partial/photo.jpg"} {
		parent := t.TempDir()
		path := filepath.Join(parent, filepath.FromSlash(mine))
		write(t, path)
		err := InNewFolder(filepath.Join(parent, "out"), func(string) error { return errors.New("failed") })
		if !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", mine, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", mine, err)
		}
	}
}

// TestInNewFolderThatFails leaves nothing.
func TestInNewFolderThatFails(t *testing.T) {
	parent, failed := t.TempDir(), errors.New("failed")
	err := InNewFolder(filepath.Join(parent, "deep", "out"), func(tmp string) error {
		return errors.Join(fillWith("half")(tmp), failed)
	})
	if got := names(t, filepath.Join(parent, "deep")); !errors.Is(err, failed) || len(got) > 0 {
		t.Errorf("%v, and %v is left", err, got)
	}
}

// TestLockExcludes: many who take and release one folder are never in it together, although
// release removes the file that they lock.
func TestLockExcludes(t *testing.T) {
	dir, times := filepath.Join(t.TempDir(), "work"), int32(500)
	if testing.Short() {
		times = 100
	}
	var inside, taken atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for taken.Load() < times {
				release, err := Lock(dir)
				if errors.Is(err, ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the folder", n)
				}
				inside.Add(-1)
				taken.Add(1)
				release()
			}
		})
	}
	all.Wait()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestLockOfARemovedFile: who opened the file before its owner removed it has a lock that counts
// for nothing, and Lock sees it.
func TestLockOfARemovedFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	path := filepath.Join(dir, lockFile)
	release, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	late, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if !isAt(late, path) {
		t.Error("the file that is there is not seen")
	}
	release()
	if _, err := os.Stat(path); err == nil {
		t.Skip("this system keeps files that are open")
	}
	if isAt(late, path) {
		t.Error("a file is seen where there is none")
	}
	if release, err = Lock(dir); err != nil {
		t.Fatal(err)
	}
	defer release()
	if isAt(late, path) {
		t.Error("the file that was removed is taken for the one that others lock")
	}
}
