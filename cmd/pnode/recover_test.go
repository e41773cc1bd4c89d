package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hasty builds a program that recovers a run after 30 s in place of 10 minutes.
func hasty() (string, error) {
	source, err := filepath.Abs("../../swarm/consensus/lineage.go")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	shorter := bytes.Replace(text, []byte("RecoverAfter = 10 * time.Minute"), []byte("RecoverAfter = 30 * time.Second"), 1)
	if bytes.Equal(shorter, text) {
		return "", fmt.Errorf("%s says nowhere that a run is recovered after 10 minutes", source)
	}
	return buildWith("hasty", map[string][]byte{source: shorter})
}

// TestRecoverWithoutTheFounder kills the founder of two nodes, which alone votes. The other one says what to do, goes on with
// the run by the command that it names. The losses are those of an undisturbed run.
func TestRecoverWithoutTheFounder(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	binary, err := hasty()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) *process { return launchBinary(t, binary, nil, args...) }
	command := func(line string, code int) string {
		p := run(strings.Fields(line)[1:]...)
		p.finish(code)
		return p.stdout.String() + p.stderr.String()
	}
	const steps = 100
	file, device, dirs := runFile(t, steps), deviceFile(t, "20GFLOP/s"), []string{t.TempDir(), t.TempDir()}
	founder := run("train", "--config", file, "--dir", dirs[0], "--json", "--name", "desk", "--stages", "1", "--replicas", "1", "--min-nodes", "2", "--await-owner", "0s", "--listen", "127.0.0.1:0", "--emulate", device)
	invite := founder.stderr.await(t, `pnode join (pnode1-\S+)`)[1]
	other := run("join", invite, "--dir", dirs[1], "--json", "--name", "rack", "--emulate", device)
	founder.until(20)
	founder.kill()

	waiting := other.stderr.await(t, "waiting: offline: desk \\(since .*Gone for good: `(pnode recover --dir [^`]+)`")
	if told := command(waiting[1], 3); !strings.Contains(told, "has not heard of desk for only") || !strings.Contains(told, "try again in") {
		t.Errorf("too early: %s", told)
	}
	for told := ""; !strings.Contains(told, "rack goes on with the run, without desk: incarnation 2"); {
		p := run(strings.Fields(waiting[1])[1:]...)
		for range p.steps { // it has none; they end with it
		}
		_ = p.cmd.Wait() // it is refused until the time is over
		told = p.stdout.String()
	}
	other.stderr.await(t, "the run was recovered by rack without desk: incarnation 2 goes on")
	losses := founder.losses
	maps.Copy(losses, other.finish(0))
	same(t, "without the founder", losses, alone(t, file, steps))
}
