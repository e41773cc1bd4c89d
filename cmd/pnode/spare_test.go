package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// clusterFile describes three equal devices for --cluster, and the lines between them.
func clusterFile(t *testing.T, matmul, line, memory string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	yaml := fmt.Sprintf("devices: [{count: 3, matmul: %s, bandwidth: 8GB/s, memory: %s}]\nlink: {bandwidth: %s, latency: 1ms}\n", matmul, memory, line)
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pidsOf returns the processes of three local nodes.
func pidsOf(t *testing.T, p *process) (pids []string) {
	t.Helper()
	for i := range 3 {
		pids = append(pids, p.stderr.await(t, fmt.Sprintf(`-%d: pid (\d+)`, i))[1])
	}
	return pids
}

func nodeDir(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("node-%d", i)) }

// planStatus holds a local node's view of the plan.
type planStatus struct {
	Peer string
	Plan []struct{ Peer, Codec string }
}

func planStatusOf(t *testing.T, dir string) (said planStatus) {
	t.Helper()
	status := start(t, "status", "--json", "--dir", dir)
	status.finish(0)
	if err := json.Unmarshal(status.stdout.Bytes(), &said); err != nil {
		t.Fatalf("status: %v: %s", err, status.stderr)
	}
	return said
}

// spareOf returns which of three local nodes the plan has no stage for.
func spareOf(t *testing.T, dir string) int {
	t.Helper()
	for i := range 3 {
		said := planStatusOf(t, nodeDir(dir, i))
		if !slices.ContainsFunc(said.Plan, func(s struct{ Peer, Codec string }) bool { return s.Peer == said.Peer }) {
			return i
		}
	}
	t.Fatal("all nodes have a part in the plan")
	return 0
}

// TestAKilledSpareIsReplaced: the node that holds the copies of both stages and computes nothing is killed. The plan goes on as it
// is, with the losses of one process; checkpoints go on too, and those that compute hold each other's copies.
func TestAKilledSpareIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps = 26
	file, dir := runFile(t, steps), t.TempDir()
	want := alone(t, file, steps)
	p := start(t, "train", "--config", file, "--dir", dir, "--json", "--min-nodes", "3", "--replicas", "1", "--stages", "2",
		"--checkpoint-every", "3", "--cluster", clusterFile(t, "4GFLOP/s", "1Gbit/s", "1GB"))
	pids := pidsOf(t, p)
	p.until(4)
	spare := spareOf(t, dir)
	kill(t, pids[spare])
	killed := p.last.Step
	same(t, "without the spare", p.finish(0), want)
	if n := bytes.Count(p.stdout.Bytes(), []byte(`"loss"`)); n != steps {
		t.Errorf("%d steps were done, want each of the %d once", n, steps)
	}
	for i := range pids {
		list := start(t, "checkpoints", "ls", "--dir", nodeDir(dir, i))
		list.finish(0)
		copied := 0 // checkpoints of after the kill and before the end, which the two others hold
		for _, m := range regexp.MustCompile(`(?m)^(\d+) .* vm-\d, vm-\d; each layer by at least 2`).FindAllStringSubmatch(list.stdout.String(), -1) {
			if step, err := strconv.Atoi(m[1]); err == nil && killed < step && step < steps {
				copied++
			}
		}
		if i != spare && copied == 0 {
			t.Errorf("node %d lists no checkpoint with copies between the kill at step %d and the end:\n%s", i, killed, list.stdout.String())
		}
	}
}

// TestACodecOutlivesAKill: on lines so narrow that the run's first plan has boundaries of fewer bits, a node with a stage is killed
// and the one without takes its place. The codec stays, and a run that is told this codec from the start has the same losses.
func TestACodecOutlivesAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	const steps = 60                                                                      // of some 60 ms each: most of them are to come when the node is killed
	file, cluster := runFile(t, steps), clusterFile(t, "400GFLOP/s", "100Mbit/s", "90MB") // room for no cut but the one in halves
	codec := "auto"                                                                       // the lines are measured, and how fast they seem says which one it becomes
	run := func(killed bool) *process {
		dir := t.TempDir()
		p := start(t, "train", "--config", file, "--dir", dir, "--json", "--codec", codec, "--min-nodes", "3", "--replicas", "1", "--stages", "2",
			"--schedule", "1f1b", "--recompute", "none", "--checkpoint-every", "1000", "--cluster", cluster)
		pids := pidsOf(t, p)
		if killed {
			before := p.until(3).Generation
			defer func() {
				if p.last.Generation == before {
					t.Error("the kill changed no plan")
				}
			}()
			codec = planStatusOf(t, nodeDir(dir, 0)).Plan[0].Codec
			kill(t, pids[(spareOf(t, dir)+1)%3])
		}
		p.finish(0)
		return p
	}
	got := run(true).losses
	want := run(false).losses
	same(t, "after a kill, in "+codec, got, want)
	floats, other := alone(t, file, steps), false
	for step, loss := range want {
		other = other || loss != floats[step]
	}
	if !other {
		t.Error("the codec changes nothing: the lines are not narrow enough to need one")
	}
}
