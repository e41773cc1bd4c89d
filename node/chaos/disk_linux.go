package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is a node's folder on a file system of its own, in memory, which can be full at once.
type disk struct{ dir string }

// mountDisk puts an empty file system on a folder, which it makes.
func mountDisk(dir string) (disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return disk{}, fmt.Errorf("chaos: %w", err)
	}
	if err := unix.Mount("pnode", dir, "tmpfs", 0, "mode=0700"); err != nil {
		return disk{}, fmt.Errorf("chaos: a disk for %s: %w", dir, err)
	}
	return disk{dir}, nil
}

// fill makes the disk no larger than what is on it.
func (d disk) fill() error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.dir, &s); err != nil {
		return fmt.Errorf("chaos: fill the disk of %s: %w", d.dir, err)
	}
	return d.resize(fmt.Sprint((s.Blocks - s.Bfree + 1) * uint64(s.Bsize))) // none at all stands for no limit
}

// empty gives the disk its room back: half of the machine's memory.
func (d disk) empty() error { return d.resize("50%") }

func (d disk) resize(size string) error {
	if err := unix.Mount("pnode", d.dir, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
		return fmt.Errorf("chaos: give the disk of %s %s: %w", d.dir, size, err)
	}
	return nil
}

// keep takes the file system away and leaves what was on it in the folder.
func (d disk) keep() error {
	copied := d.dir + ".copy"
	if said, err := exec.Command("cp", "-a", d.dir, copied).CombinedOutput(); err != nil {
		return fmt.Errorf("chaos: keep %s, which is in memory alone: %w: %s", d.dir, err, strings.TrimSpace(string(said)))
	}
	if err := unix.Unmount(d.dir, 0); err != nil {
		return fmt.Errorf("chaos: unmount %s: %w", d.dir, err)
	}
	if err := os.Remove(d.dir); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	return os.Rename(copied, d.dir)
}
