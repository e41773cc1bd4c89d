package monitor

import (
	"log/slog"
	"slices"
	"testing"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestASubstituteIsTold: once, with what it begins with, and while it lasts in the status.
func TestASubstituteIsTold(t *testing.T) {
	state := consensus.State{
		Checkpoint: consensus.Checkpoint{Step: 10}, Plan: plan.Plan{Generation: 3, Start: 4},
		Members: []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "lab"}},
	}
	for _, c := range []struct {
		newest     plan.Step
		substitute consensus.Substitute
		want       string
	}{
		{12, consensus.Substitute{Lost: "a", By: "b"}, "desk is lost: lab computes its part from step 13 on, from its own copy of the same layers"},
		{12, consensus.Substitute{Lost: "a", By: "b", Replays: true, From: 10, Reason: "its process has ended"}, "desk is lost (its process has ended): lab computes its part from step 13 on, from the checkpoint of step 10, with 2 steps computed again from resent messages"},
		{8, consensus.Substitute{Lost: "a", By: "b", Replays: true, From: 10}, "desk is lost: lab computes its part from step 11 on, from the checkpoint of step 10"},
	} {
		m := &Monitor{Config: Config{Self: "b", Log: slog.New(slog.DiscardHandler)}}
		m.steps.newest = api.Event{Generation: 3, Step: c.newest}
		m.RosterChanged(state)
		if substituteStatus(state) != nil {
			t.Error("the status has a substitute before there is one")
		}
		with := state
		c.substitute.Generation = 3
		with.Substitute = &c.substitute
		m.RosterChanged(with)
		again := c.substitute
		with.Substitute = &again
		m.RosterChanged(with)
		var told []string
		for _, h := range m.History().Happened {
			if h.Event.Kind == api.KindSubstitute && h.Event.Generation == 3 {
				told = append(told, h.Event.Message)
			}
		}
		if !slices.Equal(told, []string{c.want}) {
			t.Errorf("told %q, want %q", told, c.want)
		}
		from := api.SourceReplica
		if c.substitute.Replays {
			from = api.SourceReplay
		}
		want := api.Substitute{Lost: "a", By: "b", From: from, Text: "desk is lost, and lab computes its part until the next plan"}
		if got := substituteStatus(with); got == nil || *got != want {
			t.Errorf("the status says %+v, want %+v", got, want)
		}
	}
}
