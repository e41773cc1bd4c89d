//go:build unix

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestFewFiles(t *testing.T) {
	if got := fewFiles(leastFiles); got != "" {
		t.Errorf("told %q where there are enough", got)
	}
	if got := fewFiles(40); !strings.Contains(got, "may open 40 files") || !strings.Contains(got, "ulimit -Hn") {
		t.Errorf("told %q", got)
	}
	if got := sentence(fmt.Errorf("node: open the folder: %w", syscall.EMFILE)); !strings.HasPrefix(got, "open the folder: ") || !strings.Contains(got, "files at once") {
		t.Errorf("told %q", got)
	}
	if got := sentence(errors.New("node: else")); got != "else" {
		t.Errorf("told %q", got)
	}
}

// TestAProcessWithFewFiles: one that may open 64 says so and trains; one that may open 12 says why it cannot, without a stack.
func TestAProcessWithFewFiles(t *testing.T) {
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	for limit, trains := range map[int]bool{64: true, 12: false} {
		dir := t.TempDir()
		run := exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d && exec %s train --preset nano --steps 2 --context 16 --micros 1 --micro-batch 1 --sample-bytes 0 --threads 1 --data %s --dir %s/run",
			limit, binary, "files.go", dir))
		out, err := run.CombinedOutput()
		if told := fmt.Sprintf("may open %d files at once", limit); !strings.Contains(string(out), told) || (err == nil) != trains || strings.Contains(string(out), "goroutine") {
			t.Errorf("with %d files: %v\n%s", limit, err, out)
		}
	}
}
