package api

import "testing"

func TestInterruptionText(t *testing.T) {
	for want, i := range map[string]Interruption{
		"back after 0.62 s: 0.05 s until it was noticed, 0.30 s to save, 0.27 s for the first step; from memory, 2 of 3 layers stayed in memory here":                                                {Rung: RungMemory, TotalS: .62, DetectS: .05, SaveS: .3, StepS: .27, Kept: 2, Layers: 3},
		"back after 9.00 s: 9.00 s for the first step; from a checkpoint, 0 of 1 layer stayed in memory here, 7 steps done again":                                                                    {Rung: RungCheckpoint, TotalS: 9, StepS: 9, Redone: 7, Layers: 1},
		"back after 1.20 s: 0.20 s until it was noticed, 0.40 s to load, 0.50 s to compute 2 steps again, 0.10 s for the first step; by a substitute, from a checkpoint and a replay":                {Rung: RungSubstitute, From: SourceReplay, TotalS: 1.2, DetectS: .2, LoadS: .4, ReplayS: .5, StepS: .1, Replayed: 2},
		"back after 0.50 s: 0.50 s for the first step; by a substitute, from its copy in memory":                                                                                                     {Rung: RungSubstitute, From: SourceReplica, TotalS: .5, StepS: .5},
		"back after 14.00 s: 1.00 s to agree, 12.00 s to compute 32 steps again, 0.50 s to save, 0.30 s for the plan, 0.20 s for the first step; from a replay, 1 of 2 layers stayed in memory here": {Rung: RungReplay, TotalS: 14, AgreeS: 1, ReplayS: 12, SaveS: .5, PlanS: .3, StepS: .2, Replayed: 32, Kept: 1, Layers: 2},
		"back after 12.80 s: 12.80 s until others had computed 32 steps again and saved; from a replay, 2 of 2 layers stayed in memory here":                                                         {Rung: RungReplay, TotalS: 12.8, SaveS: 12.8, Replayed: 32, Kept: 2, Layers: 2},
	} {
		if got := i.Text(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
