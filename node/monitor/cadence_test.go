package monitor

import (
	"testing"

	"pnode/node/gossip"
	"pnode/planner/holders"
	"pnode/planner/plan"
)

// TestDescribeCadence: status says what the node that coordinates the steps does, in whole steps.
func TestDescribeCadence(t *testing.T) {
	cadence := holders.Checkpoint{StateBytes: 5e6, TookNanos: 260e6}.Cadence(holders.Rate{})
	cadence.StepNanos = 530e6
	first := cadence
	first.TookNanos, first.StepNanos = 0, 0
	for _, c := range []struct {
		name  string
		beat  gossip.Heartbeat
		asked plan.Step
		steps plan.Step
		want  string
	}{
		{"nothing is known", gossip.Heartbeat{StepNanos: 530e6}, 0, 0, ""},
		{"no step was measured", gossip.Heartbeat{StepNanos: 530e6, Cadence: &first}, 0, 0, ""},
		{"asked for", gossip.Heartbeat{StepNanos: 530e6}, 20, 20, "one every 20 steps (10.60 s), as asked"},
		{"asked for before a step", gossip.Heartbeat{}, 1, 1, "one every 1 step, as asked"},
		{"before the first one", gossip.Heartbeat{Cadence: &holders.Cadence{EveryNanos: 5e9, LostNanos: 1e6, StepNanos: 530e6, Why: holders.ForReplay}}, 0, 10, "one every 10 steps (5.30 s), so that a death costs little to replay"},
		{"measured, and the last step was long", gossip.Heartbeat{StepNanos: 7530e6, Cadence: &cadence}, 0, 10, "one every 10 steps (5.30 s), so that a death costs little to replay; one takes 260.00 ms in the background, which counts as a loss of 15.00 ms"},
	} {
		got := describeCadence(c.beat, c.asked)
		switch {
		case c.want == "":
			if got != nil {
				t.Errorf("%s: %+v, want nothing", c.name, got)
			}
		case got == nil || got.Text != c.want || got.EverySteps != c.steps:
			t.Errorf("%s: %+v, want %d steps: %q", c.name, got, c.steps, c.want)
		}
	}
}
