package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pnode/checkpoint"
	"pnode/node"
	"pnode/node/config"
)

// TestASecondStartLeavesTheNumbersAlone: what looks unfinished in a CSV file is a line that the node is writing.
func TestASecondStartLeavesTheNumbersAlone(t *testing.T) {
	t.Parallel()
	dir, at := t.TempDir(), t.TempDir()
	const text = "time,generation,st"
	table, board := filepath.Join(at, "run.csv"), filepath.Join(at, "tb")
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := checkpoint.Lock(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Config{Dir: dir, CSV: table, TensorBoard: board}
	if _, err := (environment{}).numbers(nil, cfg); !errors.Is(err, node.ErrRunning) {
		t.Errorf("%v, want %v", err, node.ErrRunning)
	}
	if got, err := os.ReadFile(table); err != nil || string(got) != text {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if _, err := os.Stat(board); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder for event files: %v", err)
	}
	release()
	numbers, err := (environment{}).numbers(nil, cfg)
	if err != nil {
		t.Fatal(err)
	}
	numbers.Close()
}
