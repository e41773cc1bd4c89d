package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tryTimeout is how long an image may take to say that it runs, on a busy machine.
const tryTimeout = 30 * time.Second

// Enter replaces this program by the image in its file, with the same arguments. It returns
// nil where there is nothing to enter, and an error with the remedy where the image cannot be
// looked for or cannot run here; try are arguments with which it does next to nothing, and
// succeeds.
func Enter(try ...string) error {
	program, err := os.Executable()
	if err != nil { // in the emptiest of containers
		return fmt.Errorf("image: this program does not find its own file, nor any part of it that opens drivers: %w; mount /proc", err)
	}
	file, err := os.Open(program)
	if err != nil { // one that may be executed and not read
		return fmt.Errorf("image: this program cannot read its own file, nor any part of it that opens drivers: %w; make it readable", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	found, ok, err := Find(file, info.Size())
	if err != nil || !ok {
		return err
	}
	if _, err := os.Stat(found.Loader); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("image: this system has no %s, which starts the part that does: %w; install the C library (glibc)", found.Loader, err)
	}
	return found.enter(try)
}

// enter returns the image a file in memory, tries it, and becomes it.
func (i Image) enter(try []string) error {
	fd, err := unix.MemfdCreate("pnode", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("image: memory for the program: %w", err)
	}
	memory := os.NewFile(uintptr(fd), "pnode")
	defer memory.Close()
	if _, err := i.WriteTo(memory); err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	if said, err := exec.CommandContext(ctx, path, try...).CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
		return fmt.Errorf("image: the program that opens drivers does not run here: %w: %s", err, first)
	}
	if err := syscall.Exec(path, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// Executable is a path by which this program can be started again, the image as such.
func Executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("image: find this program's file: %w", err)
	}
	if strings.HasPrefix(path, "/memfd:") {
		return "/proc/self/exe", nil // of the process that starts it
	}
	return path, nil
}
