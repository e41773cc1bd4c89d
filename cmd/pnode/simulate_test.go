package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateACluster plays a day on the example cluster, and a trace of a file.
func TestSimulateACluster(t *testing.T) {
	cluster := filepath.Join(root, "docs", "examples", "cluster.yaml")
	args := []string{"simulate", "--cluster", cluster, "--preset", "nano", "--span", "2h", "--every", "20m", "--price", "0.5"}
	code, out, stderr := pnode(t, args...)
	for _, want := range []string{"policy", "pnode ", "templates ", "checkpoint-restart ", "redundant ", "tokens per unit", "constants measured: pnode's own times"} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q: %s%s", code, want, out, stderr)
		}
	}
	if _, again, _ := pnode(t, args...); again != out {
		t.Errorf("another result for the same seed: %s", again)
	}
	file := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(file, []byte("0,add,a\n0,add,b\n0,add,c\n0,add,d\n600000,remove,b\n3600000,remove,a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr = pnode(t, "simulate", "--cluster", cluster, "--preset", "nano", "--trace", file, "--notice", "1m", "--policy", "pnode", "--constants", "oobleck", "--json")
	var got struct {
		Policy, Source                  string
		Losses, Notices, Left, Answered int
		Steps                           int64
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || got.Policy != "pnode" || got.Losses != 2 || got.Notices != 2 || got.Steps == 0 || !strings.Contains(got.Source, "Oobleck's simulator") {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
}

func TestSimulateTellsWhatIsWrong(t *testing.T) {
	cluster := filepath.Join(root, "docs", "examples", "cluster.yaml")
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("0,add,a\nsoon,remove,a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--cluster is missing":                                   {},
		"bad.csv: bad trace: line 2: time \"soon\": want whole":  {"--cluster", cluster, "--trace", bad},
		"leave --nodes, --span, --every and --back out":          {"--cluster", cluster, "--trace", bad, "--every", "5m"},
		"policy \"fast\": want all, or some of pnode, templates": {"--cluster", cluster, "--policy", "fast"},
		"constants \"mine\": want measured or oobleck":           {"--cluster", cluster, "--constants", "mine"},
		"--price is -1":                        {"--cluster", cluster, "--price", "-1"},
		"--notice is -1s":                      {"--cluster", cluster, "--notice", "-1s"},
		"--sync is local:h=5: want every-step": {"--cluster", cluster, "--sync", "local:h=5"},
		"nodes are 5000: want 1 to 4096":       {"--cluster", cluster, "--nodes", "5000"},
	} {
		if code, out, stderr := pnode(t, append([]string{"simulate"}, args...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, no %q: %s%s", args, code, want, out, stderr)
		}
	}
}
