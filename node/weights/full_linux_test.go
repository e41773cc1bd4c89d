package weights

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pnode/checkpoint"
)

// TestImportOntoAFullDisk tells what the whole model takes, and leaves nothing.
func TestImportOntoAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=112m"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		// The store that has no room to close stays open until the process ends.
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(disk, "imported")
	err := Import(t.Context(), open(t, write(t, byteModel, unspoiled)), dir, nil)
	if !errors.Is(err, checkpoint.ErrDiskFull) || !strings.Contains(err.Error(), "the model takes 0.0 MB there, and 268.4 MB of the disk stay free: ") || !strings.Contains(err.Error(), "name a folder on another disk (--dir)") {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
