//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestFewFiles(t *testing.T) {
	if got, err := fewFiles(leastFiles); got != "" || err != nil {
		t.Errorf("told %q, %v where there are enough", got, err)
	}
	if got, err := fewFiles(fewestFiles); !strings.Contains(got, "may open 64 files") || !strings.Contains(got, "ulimit -Hn") || err != nil {
		t.Errorf("told %q, %v", got, err)
	}
	if got, err := fewFiles(fewestFiles - 1); got != "" || err == nil || err.Error() != "this process may open 63 files at once, and a node needs 64 at least: raise the limit with `ulimit -n 1024`, LimitNOFILE= of systemd or --ulimit nofile= of a container, and start it again" {
		t.Errorf("told %q, %v", got, err)
	}
	if got := sentence(fmt.Errorf("node: open the folder: %w", syscall.EMFILE)); !strings.HasPrefix(got, "open the folder: ") || !strings.Contains(got, "files at once") {
		t.Errorf("told %q", got)
	}
	if got := sentence(errors.New("node: else")); got != "else" {
		t.Errorf("told %q", got)
	}
}

// TestAProcessWithFewFiles: one that may open 64 says so and trains; one that may open 24 says what it needs and writes nothing.
func TestAProcessWithFewFiles(t *testing.T) {
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	for limit, trains := range map[int]bool{64: true, 24: false} {
		dir := t.TempDir()
		run := exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d && exec %s train --preset nano --steps 2 --context 16 --micros 1 --micro-batch 1 --sample-bytes 0 --threads 1 --data %s --dir %s/run",
			limit, binary, "files.go", dir))
		out, err := run.CombinedOutput()
		if told := fmt.Sprintf("may open %d files at once", limit); !strings.Contains(string(out), told) || (err == nil) != trains || strings.Contains(string(out), "goroutine") {
			t.Errorf("with %d files: %v\n%s", limit, err, out)
		}
		if _, err := os.Stat(dir + "/run"); !trains && err == nil {
			t.Errorf("with %d files it made its folder", limit)
		}
	}
}
