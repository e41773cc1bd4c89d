package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOutputIsCurrent generates each file again and compares it with the one in the tree,
// but for the line that quotes the command.
func TestOutputIsCurrent(t *testing.T) {
	for _, group := range []string{"loops", "math"} {
		fresh := filepath.Join(t.TempDir(), group+".s")
		if out, err := exec.Command("go", "run", ".", "-group", group, "-out", fresh).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", group, err, out)
		}
		if got, want := body(t, fresh), body(t, filepath.Join("..", group+"_amd64.s")); !bytes.Equal(got, want) {
			t.Errorf("%s_amd64.s is not what the generator writes: run go generate ./kernels/cpu", group)
		}
	}
}

// body is a file without its first line.
func body(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return rest
}
