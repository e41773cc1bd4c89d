package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLocalStepsThroughAKillAndAnInterrupt: two replicas with local steps on a slow line; one is killed within a round, the other one goes on from the last
// outer step, is interrupted, and both nodes are resumed to the end, together or, where one is late, one of them alone. Each sample has counted once by their ledgers, and the model can be used.
func TestLocalStepsThroughAKillAndAnInterrupt(t *testing.T) {
	t.Parallel()
	const steps = 40
	file, dir, cluster := runFile(t, steps), t.TempDir(), filepath.Join(t.TempDir(), "cluster.yaml")
	yaml := "devices: [{count: 2, matmul: 8GFLOP/s, bandwidth: 8GB/s, memory: 1GB}]\nlink: {bandwidth: 50Mbit/s, latency: 5ms}\n"
	if err := os.WriteFile(cluster, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "train", "--config", file, "--cluster", cluster, "--dir", dir, "--json", "--sync", "local:h=5", "--replicas", "2", "--min-nodes", "2")
	pid := p.stderr.await(t, `-1: pid (\d+)`)
	before := p.until(5)
	kill(t, pid[1]) // within a round, or in the next outer step
	alone := p.past(before.Generation)
	p.interrupt()
	first := p.finish(0)
	if len(first) >= steps {
		t.Fatal("the run was over before the interrupt")
	}
	if p.repeated > 0 || alone.Step > len(first) {
		t.Errorf("%d steps were done again, of %d told", p.repeated, len(first))
	}
	resumed := start(t, "train", "--resume", "--dir", dir, "--json")
	rest := resumed.finish(0)
	if len(first)+len(rest) != steps || resumed.last.Step != steps {
		t.Errorf("%d steps before the interrupt and %d after it, up to %d, want each of %d once", len(first), len(rest), resumed.last.Step, steps)
	}

	// The inner steps that did not count are not made again: their micro-batches come in later steps, and the run trains on so many fewer.
	const most = 4 * steps
	var audit struct{ Steps, Samples, Given, Lost, Doubled int }
	code, stdout, stderr := pnode(t, "audit", dir, "--json")
	if err := json.Unmarshal([]byte(stdout), &audit); code != exitOK || err != nil || audit.Steps != steps || audit.Lost+audit.Doubled != 0 || audit.Samples+audit.Given > most || audit.Samples < most/2 {
		t.Errorf("the audit exits with %d, %v, want about %d samples, each once:\n%s%s", code, err, most, stdout, stderr)
	}
	out := filepath.Join(t.TempDir(), "out")
	if code, _, stderr := pnode(t, "export", out, "--dir", dir); code != exitOK {
		t.Fatalf("export exits with %d: %s", code, stderr)
	}
	if code, stdout, stderr := pnode(t, "eval", "--dir", out, file); code != exitOK || !strings.Contains(stdout, "PERPLEXITY") {
		t.Errorf("the model that was exported cannot be used: %d, %s%s", code, stdout, stderr)
	}
}
