package corpus

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// goCommandTimeout bounds the question to the go command, which answers at once.
const goCommandTimeout = 10 * time.Second

// GoSourceTree finds the Go toolchain's own source: the folder src of the variable GOROOT,
// else of what the go command on the path says. It is the text a run trains on when the
// user names none and it is there. The error wraps ErrNoGo.
func GoSourceTree() (string, error) {
	root, from := os.Getenv("GOROOT"), "the variable GOROOT"
	if root == "" {
		var err error
		if root, err = goCommandRoot(); err != nil {
			return "", fmt.Errorf("corpus: %w: GOROOT is not set and `go env GOROOT` fails (%w)", ErrNoGo, err)
		}
		from = "`go env GOROOT`"
	}
	src := filepath.Join(root, "src")
	if _, err := os.Stat(filepath.Join(src, "builtin", "builtin.go")); err != nil {
		return "", fmt.Errorf("corpus: %w: %s names %s (%w)", ErrNoGo, from, root, err)
	}
	return src, nil
}

func goCommandRoot() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), goCommandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	// Whatever module the current folder belongs to, no toolchain is to be downloaded.
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GO111MODULE=off")
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
