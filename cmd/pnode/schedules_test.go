package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"pnode/pipeline/trace"
)

// TestSchedulesGiveTheLossesOfOne runs schedules as processes, with a trace of all of them.
func TestSchedulesGiveTheLossesOfOne(t *testing.T) {
	t.Parallel()
	const steps = 8
	file := runFile(t, steps)
	want := alone(t, file, steps)
	for _, schedule := range []string{"zb-h1", "interleaved:v=2", "zb-v"} {
		t.Run(schedule, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			line := filepath.Join(dir, "trace.json")
			p := start(t, "train", "--config", file, "--dir", filepath.Join(dir, "run"), "--json",
				"--local", "2", "--replicas", "1", "--stages", "2", "--schedule", schedule, "--trace", line)
			same(t, schedule, p.finish(0), want)
			f, err := os.Open(line)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := trace.Read(f)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Names) != 2 || len(got.Keys()) != steps {
				t.Fatalf("the trace has %d steps of %d workers, want %d of two", len(got.Keys()), len(got.Names), steps)
			}
			for _, key := range got.Keys() {
				if l := got.Timeline(key); len(l.Workers) != 2 || l.Makespan <= 0 {
					t.Errorf("%v: %d workers in %d ns", key, len(l.Workers), l.Makespan)
				}
			}
		})
	}
}

// TestBothWaysGivesTheLossesOfTwoReplicas has each node hold a stage of both.
func TestBothWaysGivesTheLossesOfTwoReplicas(t *testing.T) {
	t.Parallel()
	file := runFile(t, 6)
	run := func(more ...string) map[int]json.Number {
		return start(t, append([]string{"train", "--config", file, "--dir", t.TempDir(), "--json", "--local", "2"}, more...)...).finish(0)
	}
	want := run("--replicas", "2", "--stages", "1")
	same(t, "both ways", run("--replicas", "1", "--stages", "2", "--schedule", "chimera"), want)
}

// TestKillingAProcessUnderChunksKeepsTheLosses loses a node that holds two stages.
func TestKillingAProcessUnderChunksKeepsTheLosses(t *testing.T) {
	t.Parallel()
	const steps = 24
	file := runFile(t, steps)
	want := alone(t, file, steps)
	p := start(t, "train", "--config", file, "--dir", t.TempDir(), "--json",
		"--local", "3", "--replicas", "1", "--stages", "3", "--schedule", "interleaved:v=2")
	pid := p.stderr.await(t, `-1: pid (\d+)`)
	p.until(7)
	kill(t, pid[1])
	same(t, "with a kill", p.finish(0), want)
	if p.last.Generation < 2 {
		t.Errorf("the run ended in generation %d: nobody noticed the kill", p.last.Generation)
	}
}
