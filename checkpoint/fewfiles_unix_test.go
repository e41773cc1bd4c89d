//go:build unix

package checkpoint

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"syscall"
	"testing"
)

// withoutFiles runs do while the process can open no file.
func withoutFiles(t *testing.T, do func()) {
	t.Helper()
	var had syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: had.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &had); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

// TestAnIndexThatCannotBeOpenedIsNotDamaged: for want of open files nothing is known of it, and it stays as it is.
func TestAnIndexThatCannotBeOpenedIsNotDamaged(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	if err := s.Commit(oneChunk(7, put(t, s, []byte("state")), 5)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	var logged bytes.Buffer
	r := openStore(t, dir, Options{ReadOnly: true, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	defer r.Close()
	withoutFiles(t, func() {
		if err := r.IndexDamage(); errors.Is(err, ErrCorrupt) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("it is told as %v", err)
		}
		r.catalog.openTree()
	})
	if text := logged.String(); strings.Contains(text, "damaged") || !strings.Contains(text, "journal alone") {
		t.Errorf("logged %s", text)
	}
	if err := r.IndexDamage(); err != nil {
		t.Errorf("with files again: %v", err)
	}
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Error("files were changed")
	}
}
