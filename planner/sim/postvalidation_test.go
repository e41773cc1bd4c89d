package sim

import (
	"testing"

	"pnode/pipeline/schedule"
)

// TestStepsAheadOfTheirCommit: without the wait for commits zb-h2 and zb-v have no bubble, on links without latency and with it.
func TestStepsAheadOfTheirCommit(t *testing.T) {
	const p = 4
	for _, c := range []struct {
		kind    string
		micros  int
		latency schedule.Nanos
		waits   schedule.Nanos
		ahead   schedule.Nanos
	}{
		{"zb-h2", 8, 0, 270, 240},
		{"zb-h2", 16, 0, 510, 480},
		{"zb-v", 8, 0, 255, 240},
		{"zb-v", 16, 0, 495, 480},
		{"1f1b", 8, 0, 330, 330},
		{"zb-h2", 8, 5, 290, 270},
	} {
		spec, err := schedule.ParseSpec(c.kind)
		if err != nil {
			t.Fatal(err)
		}
		chunks := spec.Chunks()
		stages := p * chunks
		s, err := spec.Build(schedule.Group{Stages: stages, Shares: []schedule.Share{{Micros: c.micros}}})
		if err != nil {
			t.Fatal(err)
		}
		each := schedule.Nanos(10 / chunks)
		hop := schedule.Hop{Latency: c.latency}
		costs := schedule.Costs{Stages: make([]schedule.StageTime, stages), Boundaries: make([]schedule.Boundary, stages-1)}
		for i := range costs.Stages {
			costs.Stages[i] = schedule.StageTime{Forward: each, Input: each, Weight: each}
		}
		row := make([]Stage, stages)
		for i := range row {
			row[i] = Stage{Device: s.Holder(0, schedule.Stage(i))}
		}
		for i := range costs.Boundaries {
			if row[i].Device != row[i+1].Device {
				costs.Boundaries[i] = schedule.Boundary{Activation: hop, Gradient: hop}
			}
		}
		for i := range row {
			if row[i].Device != row[len(row)-1].Device {
				row[i].Commit, row[i].Report = c.latency, c.latency
			}
		}
		passes, err := schedule.Intervals(s, schedule.Timing{Replicas: []schedule.Costs{costs}})
		if err != nil {
			t.Fatal(err)
		}
		tail := &Tail{Stages: [][]Stage{row}, Send: func(int, int, int64) schedule.Hop { return schedule.Hop{} }}
		if waits, ahead := tail.After(passes), tail.PostValidated(passes[0]); waits != c.waits || ahead != c.ahead {
			t.Errorf("%s with %d micro-batches, links of %d: %d, without the wait %d; want %d and %d", c.kind, c.micros, c.latency, waits, ahead, c.waits, c.ahead)
		}
	}
}
