package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheModelReachesItsOwner: three machines, each with a third of the layers. While they train anybody's folder gives the
// model of the newest checkpoint, and anybody can have all of it. The owner's machine dies near the end, the others finish without it and stay; when
// it is back it gets the whole model, all end, and its folder alone gives the model.
func TestTheModelReachesItsOwner(t *testing.T) {
	t.Parallel()
	const steps = 60
	file, device := runFile(t, steps), deviceFile(t, "1GFLOP/s")
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	owner := start(t, "train", "--config", file, "--dir", dirs[0], "--json", "--name", "desk", "--voters", "any", "--min-nodes", "3", "--stages", "3",
		"--replicas", "1", "--checkpoint-every", "10", "--listen", "127.0.0.1:0", "--emulate", device)
	invite := owner.stderr.await(t, `pnode join (pnode1-\S+)`)
	var others []*process
	for _, dir := range dirs[1:] {
		others = append(others, start(t, "join", invite[1], "--dir", dir, "--emulate", device))
	}
	others[0].stderr.await(t, "checkpoint: step 20")
	start(t, "generate", "--dir", dirs[1], "--prompt", "a", "--tokens", "3").finish(0)
	evaluated := start(t, "eval", "--dir", dirs[1], file)
	evaluated.finish(0)
	if told := evaluated.stdout.String(); !strings.Contains(told, "PERPLEXITY") {
		t.Errorf("pnode eval of a run that goes on says %q", told)
	}
	newest := filepath.Join(t.TempDir(), "newest")
	start(t, "export", newest, "--dir", dirs[1]).finish(0)
	if _, err := os.Stat(filepath.Join(newest, "model.safetensors")); err != nil {
		t.Error(err)
	}
	fetch := start(t, "fetch", "--dir", dirs[2])
	fetch.finish(0)
	if told := fetch.stdout.String(); !strings.Contains(told, "is here: `pnode generate --dir "+dirs[2]) {
		t.Errorf("pnode fetch says %q", told)
	}
	if err := owner.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range others {
		p.stderr.await(t, `this node stays until its owner, desk, has the whole model`)
	}
	back := start(t, "train", "--resume", "--dir", dirs[0], "--emulate", device)
	for _, p := range others {
		p.finish(0)
	}
	back.finish(0)
	back.stderr.await(t, "model: the whole model of step 60 is here: `pnode generate --dir "+dirs[0])
	out := filepath.Join(t.TempDir(), "out")
	start(t, "export", out, "--dir", dirs[0]).finish(0)
	if _, err := os.Stat(filepath.Join(out, "model.safetensors")); err != nil {
		t.Error(err)
	}
}
