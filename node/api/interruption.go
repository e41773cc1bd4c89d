package api

import (
	"fmt"
	"strings"

	"pnode/planner/plan"
)

// Rung names what the steps go on from after an interruption.
type Rung string

// The rungs, the cheapest loss first.
const (
	RungSubstitute Rung = "substitute" // no plan ended: another member goes on in a lost one's place
	RungPause      Rung = "pause"      // the plan before ended in order, after a step that was saved
	RungMemory     Rung = "memory"     // from the newest step, which the living had in memory
	RungReplay     Rung = "replay"     // the same, with lost workers' steps computed again by one member
	RungCheckpoint Rung = "checkpoint" // from a checkpoint: steps after it, if there were any, are done again
)

// Source names what a substitute begins with.
type Source string

// The sources.
const (
	SourceReplica Source = "replica" // its own state of the same layers, in memory
	SourceReplay  Source = "replay"  // the newest checkpoint, with the steps since computed again
)

// Interruption says where the time went from the newest step of one plan to the first step of the next, as a node saw it
// that has a part in both; or to the next step of the same plan, with a substitute. The parts follow each other and add up to
// TotalS.
type Interruption struct {
	Rung Rung `json:"rung"`
	// From is there with RungSubstitute alone.
	From Source `json:"from,omitempty"`
	Why  string `json:"why"` // there is another plan, or a substitute
	// Last is the newest step of the plan before that this node took. Redone counts the steps up to it that are done again.
	Last   plan.Step `json:"last"`
	Redone plan.Step `json:"redone"`
	TotalS float64   `json:"total_s"`
	// DetectS is until the work on the old plan ended here: it has the step under way. AgreeS is then until the log named
	// who saves what of the newest step, SaveS until the log had the checkpoint, PlanS until it had the plan, LoadS until
	// the state was in place, and StepS until the first step was committed.
	//
	// With RungReplay the member that computed Replayed steps again has ReplayS, in front of SaveS. Of other nodes SaveS has both.
	//
	// With a substitute DetectS is until this node missed the lost one, AgreeS until the log named the substitute. The substitute
	// alone knows LoadS, and ReplayS: then until it had computed Replayed steps again. Of other nodes StepS has both.
	DetectS  float64   `json:"detect_s"`
	AgreeS   float64   `json:"agree_s"`
	SaveS    float64   `json:"save_s"`
	PlanS    float64   `json:"plan_s"`
	LoadS    float64   `json:"load_s"`
	ReplayS  float64   `json:"replay_s,omitempty"`
	StepS    float64   `json:"step_s"`
	Replayed plan.Step `json:"replayed,omitempty"`
	// Kept counts the layers here whose state stayed in memory, of Layers; both are 0 with a substitute.
	Kept   int `json:"kept"`
	Layers int `json:"layers"`
}

// part is some of the time of an interruption.
type part struct {
	seconds float64
	what    string
}

// Text tells people where the time went: "back after 0.62 s: 0.05 s until it was noticed, ...".
func (i Interruption) Text() string {
	again, save := "to compute "+plan.Count(int(i.Replayed), "step")+" again", "to save"
	if i.Rung == RungReplay && i.ReplayS == 0 {
		save = "until others had computed " + plan.Count(int(i.Replayed), "step") + " again and saved"
	}
	first, then := part{i.ReplayS, again}, part{i.LoadS, "to load"}
	if i.Rung == RungSubstitute {
		first, then = then, first
	}
	var parts []string
	for _, p := range []part{
		{i.DetectS, "until it was noticed"},
		{i.AgreeS, "to agree"},
		first,
		{i.SaveS, save},
		{i.PlanS, "for the plan"},
		then,
		{i.StepS, "for the first step"},
	} {
		if p.seconds >= 0.005 {
			parts = append(parts, fmt.Sprintf("%.2f s %s", p.seconds, p.what))
		}
	}
	text := fmt.Sprintf("back after %.2f s", i.TotalS)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	switch {
	case i.Rung == RungSubstitute && i.From == SourceReplay:
		return text + "; by a substitute, from a checkpoint and a replay"
	case i.Rung == RungSubstitute:
		return text + "; by a substitute, from its copy in memory"
	}
	text += fmt.Sprintf("; from %s, %d of %s stayed in memory here", i.rungText(), i.Kept, plan.Count(i.Layers, "layer"))
	if i.Redone > 0 {
		text += fmt.Sprintf(", %s done again", plan.Count(int(i.Redone), "step"))
	}
	return text
}

func (i Interruption) rungText() string {
	switch i.Rung {
	case RungPause:
		return "a pause"
	case RungReplay:
		return "a replay"
	case RungCheckpoint:
		return "a checkpoint"
	}
	return "memory"
}
