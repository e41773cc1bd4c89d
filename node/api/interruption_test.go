package api

import "testing"

func TestInterruptionText(t *testing.T) {
	for want, i := range map[string]Interruption{
		"back after 0.62 s: 0.05 s until it was noticed, 0.30 s to save, 0.27 s for the first step; from memory, 2 of 3 layers stayed in memory here":                                 {Rung: RungMemory, TotalS: .62, DetectS: .05, SaveS: .3, StepS: .27, Kept: 2, Layers: 3},
		"back after 9.00 s: 9.00 s for the first step; from a checkpoint, 0 of 1 layer stayed in memory here, 7 steps done again":                                                     {Rung: RungCheckpoint, TotalS: 9, StepS: 9, Redone: 7, Layers: 1},
		"back after 1.20 s: 0.20 s until it was noticed, 0.40 s to load, 0.50 s to compute 2 steps again, 0.10 s for the first step; by a substitute, from a checkpoint and a replay": {Rung: RungSubstitute, From: SourceReplay, TotalS: 1.2, DetectS: .2, LoadS: .4, ReplayS: .5, StepS: .1, Replayed: 2},
		"back after 0.50 s: 0.50 s for the first step; by a substitute, from its copy in memory":                                                                                      {Rung: RungSubstitute, From: SourceReplica, TotalS: .5, StepS: .5},
	} {
		if got := i.Text(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
