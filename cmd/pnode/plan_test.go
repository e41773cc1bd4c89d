package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanOfACluster has devices whose memory is enough for the optimizer state of the middle
// stage and not for that of the others.
func TestPlanOfACluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	const text = `devices:
  - {count: 6, matmul: 10GFLOP/s, bandwidth: 20GB/s, memory: 165MB}
link: {bandwidth: 1Gbit/s, latency: 1ms}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--preset", "small-10m", "--cluster", file, "--replicas", "2", "--stages", "3", "--micros", "8", "--micro-batch", "1", "--recompute", "none"}
	code, out, stderr := pnode(t, args...)
	if code != exitOK || !strings.Contains(out, "2 replicas x 3 stages on 6 of 6") || !strings.Contains(out, "on each of 2 replicas of layers [0,3) and [5,8), whole of layers [3,5)") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := pnode(t, append(args, "--nodes", "3")...); code != exitUsage || !strings.Contains(stderr, "nodes is 3: leave it out") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
