package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/planner/plan"
	planreport "pnode/planner/report"
)

// TestPlanOfACluster has devices whose memory is enough for the optimizer state of the middle
// stage and not for that of the others.
func TestPlanOfACluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	const text = `devices:
  - {count: 6, matmul: 10GFLOP/s, bandwidth: 20GB/s, memory: 207MB}
link: {bandwidth: 1Gbit/s, latency: 1ms}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--preset", "small-10m", "--cluster", file, "--replicas", "2", "--stages", "3", "--micros", "8", "--micro-batch", "1", "--recompute", "none", "--schedule", "1f1b"}
	code, out, stderr := pnode(t, args...)
	if code != exitOK || !strings.Contains(out, "2 replicas of 3 stages on 6 of 6") || !strings.Contains(strings.Join(strings.Fields(out), " "), "on each of 2 replicas of layers 0-2 and 5-7, whole of layers 3-4") {
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
		if code != exitOK || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("exit code %d, no %q: %s%s", code, want, out, stderr)
		}
	}
	if code, out, stderr := pnode(t, append(args, "--storage", "f32")...); code != exitOK || strings.Contains(out, "bf16") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}

// TestPlanForScriptsAndPictures: the report beside the plan and its reasons, a picture, every reason where that is asked
// for, and flags under which a model fits that does not.
func TestPlanForScriptsAndPictures(t *testing.T) {
	folder := t.TempDir()
	file, svg := filepath.Join(folder, "c.yaml"), filepath.Join(folder, "step.svg")
	const text = `devices:
  - {count: 2, model: card of a kind, matmul: 10GFLOP/s, bandwidth: 20GB/s, memory: 400MB}
link: {bandwidth: 1Gbit/s, latency: 1ms}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--preset", "small-10m", "--cluster", file, "--stages", "2", "--micro-batch", "1", "--steps", "100"}
	code, out, stderr := pnode(t, append(args, "--json", "--svg", svg)...)
	var got struct {
		Plan    plan.Plan         `json:"plan"`
		Reasons plan.Reasons      `json:"reasons"`
		Report  planreport.Report `json:"report"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	r := got.Report
	if r.Used != 2 || len(r.Devices) != 2 || r.Devices[0].Model != "card of a kind" || r.EndNanos != 100*r.StepNanos || got.Reasons[0].Nanos != r.StepNanos || len(got.Plan.Workers()) != 2 {
		t.Errorf("report %+v", r)
	}
	if picture, err := os.ReadFile(svg); err != nil || !strings.Contains(string(picture), "card of a kind") {
		t.Errorf("the picture: %v", err)
	}
	if code, out, stderr := pnode(t, append(args, "--why")...); code != exitOK || !strings.Contains(out, "\nWhy\npredicted step ") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	code, _, stderr = pnode(t, "plan", "--preset", "small-10m", "--cluster", file, "--micro-batch", "16", "--recompute", "none")
	if code == exitOK || !strings.Contains(stderr, "does not fit") || !strings.Contains(stderr, "; it fits with --recompute auto") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
