package monitor

import (
	"fmt"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// substituteEvent tells of the substitute that a state has. current is the newest step that this node knows of.
func substituteEvent(state consensus.State, current api.Event) api.Event {
	newest := max(state.Plan.Start, state.Checkpoint.Step)
	if current.Generation == state.Plan.Generation {
		newest = max(newest, current.Step)
	}
	return api.Event{Kind: api.KindSubstitute, Generation: state.Plan.Generation, Step: newest, Message: substituteText(state, newest)}
}

// substituteText says who is lost and who computes its part after the newest step, from what.
func substituteText(state consensus.State, newest plan.Step) string {
	s := state.Substitute
	text := state.NameOf(s.Lost) + " is lost"
	if s.Reason != "" {
		text += " (" + s.Reason + ")"
	}
	text += fmt.Sprintf(": %s computes its part from step %d on, from ", state.NameOf(s.By), newest+1)
	switch again := int(newest) - int(s.From); {
	case !s.Replays:
		return text + "its own copy of the same layers"
	case again <= 0:
		return text + fmt.Sprintf("the checkpoint of step %d", s.From)
	default:
		return text + fmt.Sprintf("the checkpoint of step %d, with %s computed again from resent messages", s.From, plan.Count(again, "step"))
	}
}

// substituteStatus returns who computes a lost member's part; nil while nobody does.
func substituteStatus(state consensus.State) *api.Substitute {
	s := state.Substitute
	if s == nil {
		return nil
	}
	text := fmt.Sprintf("%s is lost, and %s computes its part until the next plan", state.NameOf(s.Lost), state.NameOf(s.By))
	return &api.Substitute{Lost: s.Lost, By: s.By, From: sourceOf(*s), Text: text}
}

// sourceOf returns what a substitute begins with.
func sourceOf(s consensus.Substitute) api.Source {
	if s.Replays {
		return api.SourceReplay
	}
	return api.SourceReplica
}
