package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
