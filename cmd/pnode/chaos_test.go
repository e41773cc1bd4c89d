package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/chaos"
)

// chaosTimeout ends a run with faults that hangs: nodes come back, and the run without faults follows.
const chaosTimeout = 12 * time.Minute

// TestChaos breaks five processes for a minute, in a run of one replica and in one of two, by schedules that never change. No
// sample is lost or doubled, and losses and weights are those of a run without faults. Where this is root on Linux, the faults
// are those of lines, too.
func TestChaos(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seed     int
		replicas string
	}{{1, "1"}, {2, "2"}} {
		t.Run(c.replicas+" replicas", func(t *testing.T) {
			t.Parallel()
			p := start(t, "chaos", "--seed", fmt.Sprint(c.seed), "--replicas", c.replicas, "--nodes", "5", "--seconds", "60", "--every", "6s", "--quiet", "5s",
				"--emulate", deviceFile(t, "2GFLOP/s"), "--line", "100Mbit/s,5ms", "--dir", t.TempDir(), "--json",
				"--", "--context", "32", "--micros", "8", "--micro-batch", "1")
			deadline := time.AfterFunc(chaosTimeout, func() { _ = p.cmd.Process.Kill() })
			defer deadline.Stop()
			for range p.steps { // it prints none
			}
			failed := p.cmd.Wait()
			var r chaos.Report
			if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil || failed != nil {
				t.Fatalf("%v, %v:\n%s\n%s", failed, err, p.stdout.Bytes(), p.stderr)
			}
			if r.Audit.Lost+r.Audit.Doubled+r.Differ > 0 || r.Compared < int(r.Steps) || r.Weights == 0 || len(r.Faults) == 0 {
				t.Errorf("the report says what no good run does:\n%s\n%s", p.stdout.Bytes(), p.stderr)
			}
			t.Logf("%s: %d faults, %d steps, %d of them redone, %.1f%% of the throughput kept", r.Network, len(r.Faults), r.Steps, r.Redone, 100*r.Kept)
		})
	}
}

// TestInterruptedChaosReports: an interrupt ends the faults, and what was seen until then is told.
func TestInterruptedChaosReports(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	t.Parallel()
	p := start(t, "chaos", "--nodes", "3", "--seconds", "3600", "--every", "1s", "--quiet", "1s", "--faults", "pause", "--network", "loopback", "--replicas", "1",
		"--emulate", deviceFile(t, "2GFLOP/s"), "--dir", t.TempDir(), "--json", "--", "--context", "32", "--micros", "4", "--micro-batch", "1")
	deadline := time.AfterFunc(chaosTimeout, func() { _ = p.cmd.Process.Kill() })
	defer deadline.Stop()
	p.stderr.await(t, `step \d+: pause of node`)
	p.interrupt()
	for range p.steps { // it prints none
	}
	if err := p.cmd.Wait(); err == nil {
		t.Error("an interrupted schedule counts as carried out")
	}
	var r chaos.Report
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, p.stdout.Bytes(), p.stderr)
	}
	told := slices.ContainsFunc(r.Problems, func(text string) bool { return strings.Contains(text, "interrupted") })
	if !told || len(r.Faults) == 0 || r.Audit.Steps == 0 || r.Audit.Lost+r.Audit.Doubled > 0 {
		t.Errorf("the report does not say what was seen:\n%s\n%s", p.stdout.Bytes(), p.stderr)
	}
}
