package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTryTraceExplains(t *testing.T) {
	dir := t.TempDir()
	for _, bad := range []struct{ path, want string }{
		{filepath.Join(dir, "missing", "t.json"), "no such file or directory; name a file in a folder that is there"},
		{dir, "is a directory"},
	} {
		err := TryTrace(bad.path)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "trace is "+bad.path+": "+bad.want) {
			t.Errorf("%s: %v", bad.path, err)
		}
	}
}

func TestTryTraceLeavesThingsAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept.json")
	if err := os.WriteFile(kept, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", kept, filepath.Join(dir, "new.json"), os.DevNull} {
		if err := TryTrace(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "[]" {
		t.Errorf("the file that was there holds %q: %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v: %v", entries, err)
	}
}
