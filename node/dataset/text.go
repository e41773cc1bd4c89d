package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"pnode/node/dataset/files"
	"pnode/planner/plan"
)

// textBytes reads a file and gives its size if it is UTF-8 without NUL bytes, else
// ErrNotText. A file of more than room bytes gives errLimit and the greatest size up to
// room that ends a character.
func textBytes(path string, room int64) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	buf := make([]byte, 256<<10)
	kept := 0 // bytes of an unfinished character at the front of buf
	for {
		n, err := f.Read(buf[kept:])
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return 0, err
		}
		part := buf[:kept+n]
		whole := files.WholeCharacters(part)
		if !utf8.Valid(part[:whole]) || bytes.IndexByte(part, 0) >= 0 || end && whole < len(part) {
			return 0, fmt.Errorf("%w: near byte %d", ErrNotText, size)
		}
		if size+int64(whole) > room {
			return size + int64(files.WholeCharacters(part[:room-size])), errLimit
		}
		size += int64(whole)
		kept = copy(buf, part[whole:])
		if end {
			return size, nil
		}
	}
}

// Store streams the corpus into chunks, as StoreChunks does, and gives the spec of the
// stream; the caller adds HeldOutPermille. A file that has become shorter since Collect is
// an error.
func (c *Corpus) Store(ctx context.Context, put func([]byte) (plan.Hash, error)) (plan.DataSpec, error) {
	chunks, size, err := StoreChunks(ctx, put, func(w io.Writer) error {
		for i, f := range c.files {
			if i > 0 {
				if _, err := w.Write([]byte{'\n'}); err != nil {
					return err
				}
			}
			if err := f.copyTo(w); err != nil {
				return err
			}
		}
		return nil
	})
	return plan.DataSpec{Chunks: chunks, SizeBytes: size}, err
}

func (s source) copyTo(w io.Writer) error {
	f, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("dataset: read text: %w", files.Explain(err))
	}
	defer func() { _ = f.Close() }() // only read
	n, err := io.CopyN(w, f, s.size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("dataset: read text: %s became shorter while it was read: %d of %d bytes; start again", s.path, n, s.size)
	}
	if err != nil {
		return fmt.Errorf("dataset: read text %s: %w", s.path, err)
	}
	return nil
}

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
			return "", fmt.Errorf("dataset: %w: GOROOT is not set and `go env GOROOT` fails (%w)", ErrNoGo, err)
		}
		from = "`go env GOROOT`"
	}
	src := filepath.Join(root, "src")
	if _, err := os.Stat(filepath.Join(src, "builtin", "builtin.go")); err != nil {
		return "", fmt.Errorf("dataset: %w: %s names %s (%w)", ErrNoGo, from, root, err)
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
