package main

import (
	"strings"
	"testing"

	"pnode/node/api"
)

// TestAStoppedRunWaitsForItsOwner: nodes that come back to a run which its owner has stopped say whom they wait for, and
// go on when it resumes.
func TestAStoppedRunWaitsForItsOwner(t *testing.T) {
	t.Parallel()
	file, device := runFile(t, 100000), deviceFile(t, "1GFLOP/s")
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	owner := start(t, "train", "--config", file, "--dir", dirs[0], "--json", "--name", "desk", "--voters", "any", "--min-nodes", "3", "--listen", "127.0.0.1:0", "--emulate", device)
	invite := owner.stderr.await(t, `pnode join (pnode1-\S+)`)
	running := []*process{owner}
	for _, dir := range dirs[1:] {
		running = append(running, start(t, "join", invite[1], "--dir", dir, "--emulate", device))
	}
	for { // a majority without the owner has to be there
		owner.until(owner.last.Step + 1)
		status := start(t, "status", "--json", "--dir", dirs[0])
		status.finish(0)
		if strings.Contains(status.stdout.String(), "while 2 of these 3 are up") {
			break
		}
	}
	stop := func(dir string) error {
		client, err := api.Dial(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		return client.Stop(t.Context())
	}
	if err := stop(dirs[1]); err == nil || !strings.Contains(err.Error(), "only an owner") {
		t.Errorf("a member stops the run: %v", err)
	}
	if err := stop(dirs[0]); err != nil {
		t.Fatal(err)
	}
	for _, p := range running {
		p.finish(0)
	}
	var back []*process
	for _, dir := range dirs[1:] { // one after the other: two may be a majority, and know soon that the owner's node is gone
		p := start(t, "join", "--dir", dir, "--emulate", device)
		p.stderr.await(t, "the run was stopped: it goes on when its owner, desk, resumes it")
		back = append(back, p)
	}
	again := start(t, "train", "--resume", "--dir", dirs[0], "--json", "--emulate", device)
	again.until(owner.last.Step + 1)
	for _, p := range back {
		p.stderr.await(t, "state: training")
	}
}
