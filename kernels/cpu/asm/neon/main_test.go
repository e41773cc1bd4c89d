package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestOutputIsCurrent compares what the generator writes with the file in the tree.
func TestOutputIsCurrent(t *testing.T) {
	tree, err := os.ReadFile(filepath.Join("..", "..", "neon_arm64.s"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(generate(), tree) {
		t.Error("neon_arm64.s is not what the generator writes: run go generate ./kernels/cpu")
	}
}
