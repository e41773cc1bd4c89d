package files

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path, plain := filepath.Join(dir, "replaced"), filepath.Join(dir, "plain")
	for _, content := range []string{"the old one", "the new"} {
		if err := Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Fatalf("holds %q: %v", got, err)
		}
	}
	if err := os.WriteFile(plain, nil, 0o666); err != nil { // as the umask says
		t.Fatal(err)
	}
	got, err := os.Stat(path)
	want, wantErr := os.Stat(plain)
	if err != nil || wantErr != nil || got.Mode() != want.Mode() {
		t.Errorf("mode %v, want %v", got.Mode(), want.Mode())
	}
}

func TestReplaceFailsWithoutTraces(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "folder")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{taken, filepath.Join(dir, "missing", "file")} {
		if err := Replace(path, []byte("x")); err == nil {
			t.Errorf("%s was replaced", path)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
