package main

import (
	"maps"
	"testing"
)

// TestALaterEndGivesTheLossesOfALongerRun: --resume --steps goes on with a finished run, with the losses of one that had
// that end from the start and came down to --min-lr at the first.
func TestALaterEndGivesTheLossesOfALongerRun(t *testing.T) {
	t.Parallel()
	file, dir := runFile(t, 6), t.TempDir()
	got := start(t, "train", "--config", file, "--dir", dir, "--json").finish(0)
	maps.Copy(got, start(t, "train", "--resume", "--steps", "11", "--dir", dir, "--json").finish(0))
	want := start(t, "train", "--config", file, "--steps", "11", "--decay-steps", "6", "--dir", t.TempDir(), "--json").finish(0)
	if len(got) != 11 {
		t.Errorf("%d steps, want 11", len(got))
	}
	same(t, "with a later end", got, want)
	start(t, "train", "--resume", "--dir", dir).finish(exitFinished)
}
