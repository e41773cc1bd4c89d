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
	if code != exitOK || !strings.Contains(out, "2 replicas of 3 stages on 6 of 6") || !strings.Contains(out, "on each of 2 replicas of layers [0,3) and [5,8), whole of layers [3,5)") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := pnode(t, append(args, "--nodes", "3")...); code != exitUsage || !strings.Contains(stderr, "--nodes is 3: leave it out") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestPlanOfUnlikePrecision has matrix units on one device of two: all stages are in bf16, unless the
// run says otherwise.
func TestPlanOfUnlikePrecision(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	const text = `devices:
  - {matmul: 10GFLOP/s, bandwidth: 20GB/s, memory: 1GB}
  - {matmul: 10GFLOP/s, matmul_bf16: 80GFLOP/s, bandwidth: 20GB/s, memory: 1GB}
link: {bandwidth: 1Gbit/s, latency: 1ms}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--preset", "small-10m", "--cluster", file, "--replicas", "1", "--stages", "2"}
	code, out, stderr := pnode(t, args...)
	for _, want := range []string{"bf16 in all stages, of later plans too", "in bf16: it multiplies bf16 at 80.0 GFLOP/s, f32 at 10.0 GFLOP/s", "in bf16: halves were not measured"} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q: %s%s", code, want, out, stderr)
		}
	}
	if code, out, stderr := pnode(t, append(args, "--storage", "f32")...); code != exitOK || strings.Contains(out, "bf16") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}
