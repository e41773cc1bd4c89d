//go:build unix

package huggingface

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAPipeInAFolderIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, configFile), 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "config.json is neither a file nor a folder") {
		t.Error(err)
	}
}
