package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fullDisk takes the first bytes only.
type fullDisk struct{ free int }

func (f *fullDisk) Write(p []byte) (int, error) {
	n := min(f.free, len(p))
	f.free -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

var errFull = errors.New("no space left on device")

// TestLostOutputFails: whatever a command prints, and however it prints it.
func TestLostOutputFails(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.txt")
	if err := os.WriteFile(in, []byte("some text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"version"},
		{"help", "train"},
		{"schedule", "--list"},
		{"train", "--print-config"},
		{"tokenize", "--tokenizer", "bytes", "--out", filepath.Join(t.TempDir(), "out"), in},
	} {
		var stderr bytes.Buffer
		e := environment{stdin: strings.NewReader(""), stdout: &fullDisk{free: 5}, stderr: &stderr, interrupts: &interrupts{exit: func(int) {}}}
		if code := e.run(args); code != exitFailure || !strings.Contains(stderr.String(), errFull.Error()) {
			t.Errorf("%v: exit code %d: %s", args, code, stderr.String())
		}
	}
}
