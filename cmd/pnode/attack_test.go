package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patchedOnce builds a client whose workers send what testdata/patched.go.txt makes of their messages.
var patchedOnce = sync.OnceValues(func() (string, error) {
	room, err := filepath.Abs("../../node/hardware")
	if err != nil {
		return "", err
	}
	source := filepath.Join(room, "emulation.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	text = bytes.Replace(text, []byte("func Exchange("), []byte("func honest("), 1)
	patch, err := os.ReadFile("testdata/patched.go.txt")
	if err != nil {
		return "", err
	}
	return buildWith("patched", map[string][]byte{source: text, filepath.Join(room, "patched.go"): patch})
})

// buildWith builds a program with other sources than those in the repository, which stay as they are, and returns its file.
func buildWith(name string, sources map[string][]byte) (string, error) {
	dir := filepath.Join(binaryDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	files := map[string]string{}
	for source, text := range sources {
		files[source] = filepath.Join(dir, filepath.Base(source))
		if err := os.WriteFile(files[source], text, 0o600); err != nil {
			return "", err
		}
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return "", err
	}
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(binaryDir, "bin", name)
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	return binary, build(outerEnv, binary, "-overlay", overlay)
}

// TestPatchedClient has a stranger with a patched client train with the owner and another stranger, all of them real
// processes: it is named by all, left out, and told so itself, and the run goes on to its end.
func TestPatchedClient(t *testing.T) {
	for _, c := range []struct{ attack, told string }{
		{"NaN", "is NaN"},
		{"half a tensor", "bad length"},
		{"flipped signs", "the loss jumped"},
	} {
		t.Run(c.attack, func(t *testing.T) {
			t.Parallel()
			attackByProcess(t, c.attack, c.told)
		})
	}
}

func attackByProcess(t *testing.T, attack, told string) {
	const from, steps = 45, 120
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	file, device, dir := runFile(t, steps), deviceFile(t, "1GFLOP/s"), t.TempDir()
	owner := start(t, "train", "--config", file, "--dir", dir, "--json", "--listen", "127.0.0.1:0", "--stages", "3", "--replicas", "1",
		"--min-nodes", "3", "--emulate", device, "--lr", "0.02", "--warmup-steps", "5", "--checkpoint-every", "2", "--keep", "1")
	invite := owner.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	liarDir := t.TempDir()
	binary, err := patchedOnce()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"ATTACK=" + attack, fmt.Sprintf("ATTACK_FROM=%d", from)}
	liar := launchBinary(t, binary, env, "join", invite, "--dir", liarDir, "--name", "liar", "--emulate", device)
	owner.tolerance = 100 // steps that are done again had other losses under attack
	honest := start(t, "join", invite, "--dir", t.TempDir(), "--emulate", device)
	owner.until(from - 1)
	begin := time.Now()
	for _, p := range []*process{owner, honest} { // for the loss, another may have been left out before
		p.stderr.await(t, `liar is not used until .*`+told)
	}
	blamed := time.Since(begin)
	liar.stderr.await(t, `this node is in the run, but not used until .*`+told)
	before := owner.last.Generation
	for owner.until(owner.last.Step+1).Generation == before {
	}
	t.Logf("from step %d to the blame %v, to the first step without the culprit %v", from-1, blamed.Round(time.Second/10), time.Since(begin).Round(time.Second/10))
	for _, where := range []string{dir, liarDir} {
		status := start(t, "status", "--dir", where)
		status.finish(0)
		if text := status.stdout.String(); !strings.Contains(text, "NOT USED") || !strings.Contains(text, told) {
			t.Errorf("status says:\n%s", text)
		}
	}
	owner.interrupt()
	owner.finish(0)
}
