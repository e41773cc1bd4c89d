package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFolderOfAnotherUser: it is not said to be empty.
func TestFolderOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(dir); err == nil {
		t.Skip("this user can look into every folder")
	}
	if _, err := Existing(dir); !errors.Is(err, os.ErrPermission) || errors.Is(err, ErrNoRun) || !strings.Contains(err.Error(), "make it readable for this user") {
		t.Error(err)
	}
}

func TestRunDirsSortByAge(t *testing.T) {
	root := t.TempDir()
	if _, err := LatestRun(root); !errors.Is(err, ErrNoRun) || !strings.Contains(err.Error(), root) {
		t.Fatalf("with no run: %v", err)
	}
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var made []string
	for _, at := range []time.Time{noon, noon, noon.Add(time.Hour), noon.Add(time.Hour)} {
		dir, err := NewRunDir(root, at)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Fatal(dir, err)
		}
		made = append(made, filepath.Base(dir))
	}
	if _, err := LatestRun(root); !errors.Is(err, ErrNoRun) {
		t.Errorf("folders in which no run began count as runs: %v", err)
	}
	for i, name := range made {
		dir := filepath.Join(root, "runs", name)
		if i == 2 { // a run of local nodes
			dir = filepath.Join(dir, "node-0")
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, MembershipFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewRunDir(root, noon.Add(2*time.Hour)); err != nil { // newest, and empty
		t.Fatal(err)
	}
	want := "20260102-120000 20260102-120000-02 20260102-130000 20260102-130000-02"
	if got := strings.Join(made, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	latest, err := LatestRun(root)
	if err != nil || filepath.Base(latest) != "20260102-130000-02" {
		t.Errorf("latest is %s, %v", latest, err)
	}
	dirs, err := RunDirs(root)
	if err != nil || len(dirs) != 4 || filepath.Base(dirs[3]) != "20260102-120000" {
		t.Errorf("got %v, %v", dirs, err)
	}
}

func TestDataHome(t *testing.T) {
	home := func() (string, error) { return filepath.FromSlash("/home/u"), nil }
	for _, tt := range []struct{ goos, variable, value, want string }{
		{"linux", "XDG_DATA_HOME", "", "/home/u/.local/share"},
		{"linux", "XDG_DATA_HOME", "relative", "/home/u/.local/share"},
		{"darwin", "", "", "/home/u/Library/Application Support"},
		{"windows", "LocalAppData", `C:\Local`, `C:\Local`},
	} {
		getenv := func(name string) string {
			if name == tt.variable {
				return tt.value
			}
			return ""
		}
		got, err := dataHome(tt.goos, getenv, home)
		if err != nil || filepath.ToSlash(got) != filepath.ToSlash(tt.want) {
			t.Errorf("%s %q: got %s, %v, want %s", tt.goos, tt.value, got, err, tt.want)
		}
	}
	abs := t.TempDir()
	if got, err := dataHome("linux", func(string) string { return abs }, home); err != nil || got != abs {
		t.Errorf("XDG_DATA_HOME=%s: got %s, %v", abs, got, err)
	}
	if _, err := dataHome("windows", func(string) string { return "" }, home); err == nil {
		t.Error("Windows without %LocalAppData% is accepted")
	}
	failing := func() (string, error) { return "", errors.New("no home") }
	if _, err := dataHome("linux", func(string) string { return "" }, failing); err == nil {
		t.Error("an unknown home is accepted")
	}
}
