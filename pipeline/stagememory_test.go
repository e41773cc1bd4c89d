package pipeline

import (
	"log/slog"
	"testing"

	"pnode/kernels/null"
	"pnode/pipeline/model"
	"pnode/planner"
)

// TestMemoryIsWhatAWorkerAllocates compares the prediction for each stage with what its
// worker takes from a device, which is one element more, for the gradient's norm.
func TestMemoryIsWhatAWorkerAllocates(t *testing.T) {
	runs := families()
	runs["gpt2"] = testRun()
	for _, level := range lean {
		run := runs["llama"]
		run.Train.Recompute = level
		runs["llama, recompute "+level.String()] = run
	}
	masked := runs["llama"]
	masked.Train.DocumentMask = true
	runs["llama, document mask"] = masked
	for _, name := range []string{"gpt2", "llama"} {
		run := runs[name]
		run.Train.Storage = model.StorageBF16
		runs[name+" in bf16"] = run
	}
	for name, run := range runs {
		for _, scheduleName := range []string{"1f1b", "gpipe"} {
			for _, starts := range [][]int{{0}, {0, 1, 3}} {
				plan := cut(run, scheduleName, starts)
				for s, place := range plan.Replicas[0].Stages {
					device := null.New()
					w, err := New(Config{
						Self: place.Peer, Run: run, Plan: plan, Stage: planner.Stage(s), Device: device, Log: slog.New(slog.DiscardHandler),
					})
					if err != nil {
						t.Fatal(err)
					}
					want, err := Memory(run, plan, 0, planner.Stage(s))
					if err != nil || device.PeakBytes() != want.Total()+4 {
						t.Errorf("%s %s stage %d of %d: %d bytes, predicted %+v (%v)", name, scheduleName, s, len(starts), device.PeakBytes(), want, err)
					}
					w.Close()
				}
			}
		}
	}
}
