package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
)

func TestScheduleCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "elastic.svg")
	code, out, stderr := pnode(t, "schedule", "--kind", "elastic", "--stages", "4", "--micro", "64", "--forward", "1", "--backward", "2",
		"--link", "0,2:4", "--link", "0", "--svg", file)
	if code != exitOK || !strings.Contains(out, "warm-ups 7 6 1 0") || !strings.Contains(out, "makespan 213ms") {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	if picture, err := os.ReadFile(file); err != nil || !strings.Contains(string(picture), "</svg>") {
		t.Errorf("%v: %.100s", err, picture)
	}
	var study struct {
		Bubble float64 `json:"bubble"`
	}
	code, out, stderr = pnode(t, "schedule", "--kind", "chimera", "--stages", "4", "--micro", "4", "--backward", "1", "--json")
	if err := json.Unmarshal([]byte(out), &study); code != exitOK || err != nil || study.Bubble < 0.199 || study.Bubble > 0.201 {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
	if code, out, _ = pnode(t, "schedule", "--kind", "gpipe", "--stages", "1", "--micro", "2", "--program"); code != exitOK || out != "0F0 0F1 0B0 0B1 0REDUCE STEP\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out, stderr = pnode(t, "schedule", "--stages", "2", "--micro", "3", "--link", "0:4", "--recompute", "1,0", "--cap", "2,1", "--svg", file)
	if picture, err := os.ReadFile(file); code != exitOK || err != nil || !strings.Contains(out, "0F0 0F1 0R0 ") || !strings.Contains(string(picture), "recomputation") {
		t.Errorf("exit code %d, %v, what is recomputed in waits is not shown: %s%s", code, err, out, stderr)
	}
	if code, out, _ = pnode(t, "schedule", "--list"); code != exitOK || !strings.Contains(out, "seq1f1b: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for want, args := range map[string][]string{
		`--link is "2:4:6": want TRANSFER:LATENCY`: {"--link", "2:4:6"},
		`--kind is "magic": want one of elastic`:   {"--kind", "magic"},
	} {
		if code, _, stderr := pnode(t, append([]string{"schedule"}, args...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d: %s, want %s", code, stderr, want)
		}
	}
}

// TestScheduleDrawsATrace writes a trace of two workers and draws its only step.
func TestScheduleDrawsATrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	r, err := trace.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	add := func(worker int, text string, from, to time.Duration) {
		a, err := schedule.ParseAction(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Add(trace.Timed{Generation: 1, Step: 4, Worker: worker, Action: a}, begin.Add(from*time.Millisecond), begin.Add(to*time.Millisecond))
	}
	r.Name(0, "first", "")
	add(0, "0F0", 0, 10)
	add(0, "0SA0", 10, 11)
	add(1, "1RA0", 0, 20)
	add(1, "1F0", 20, 30)
	add(1, "1B0", 30, 40)
	add(1, "1SG0", 40, 40)
	add(0, "0RG0", 11, 50)
	add(0, "0B0", 50, 60)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	drawn := filepath.Join(t.TempDir(), "step.svg")
	code, out, stderr := pnode(t, "schedule", "--trace", file, "--svg", drawn)
	if code != exitOK || !strings.Contains(out, "step 4 of generation 1: measured 60ms; predicted") || !strings.Contains(out, "60ms (+0.0%)") {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	if picture, err := os.ReadFile(drawn); err != nil || !strings.Contains(string(picture), ">first<") || !strings.Contains(string(picture), ">predicted<") {
		t.Errorf("%v: %.100s", err, picture)
	}
	if code, _, stderr := pnode(t, "schedule", "--trace", file, "--step", "5"); code != exitUsage || !strings.Contains(stderr, "no step 5: want 4 to 4") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, _ := pnode(t, "schedule", "--trace", file+".not"); code != exitUsage {
		t.Errorf("exit code %d for a file that is not there", code)
	}
}
