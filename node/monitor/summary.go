package monitor

import (
	"fmt"
	"math"
	"slices"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// reasonOf returns why a plan was made, in the words of who asked for it, with members by their names.
func reasonOf(state consensus.State) string {
	if len(state.Reasons) == 0 {
		return ""
	}
	return withNames(state.Reasons[0], state.NameOf)
}

// summarize describes a plan in one line, with the reason it was made for.
func summarize(p plan.Plan, reason string) string {
	var counts []int // of the replicas' stages, each once
	stages := 0
	for _, pipe := range p.Replicas {
		stages += len(pipe.Stages)
		if !slices.Contains(counts, len(pipe.Stages)) {
			counts = append(counts, len(pipe.Stages))
		}
	}
	slices.Sort(counts)
	text := fmt.Sprintf("generation %d from step %d: %s of ", p.Generation, p.Start, plan.Count(len(p.Replicas), "replica"))
	for i, n := range counts {
		if i == len(counts)-1 {
			text += plan.Count(n, "stage")
		} else {
			text += fmt.Sprintf("%d and ", n)
		}
	}
	if p.Schedule != plan.ScheduleName {
		name := p.Schedule
		if spec, err := schedule.ParseSpec(name); err == nil {
			name = spec.Short()
		}
		text += " on " + plan.Count(len(p.Workers()), "device")
		if each := stages / max(1, len(p.Workers())); each > 1 && each*len(p.Workers()) == stages {
			text += fmt.Sprintf(", %d stages each,", each)
		}
		text += " under " + name
	}
	if precision := p.PrecisionText(); precision != "" {
		text += ", " + precision
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

// Done publishes the end of a run, with a summary.
func (m *Monitor) Done(state consensus.State) {
	if o := m.outer.show(m.Beats, m.Self, time.Now(), true); o != nil {
		m.Publish(outerEvent(*o))
	}
	m.Publish(m.doneEvent(state))
}

func (m *Monitor) doneEvent(state consensus.State) api.Event {
	e := m.steps.finish()
	newest := e.Step
	e.Kind, e.Step, e.Steps = api.KindDone, state.Checkpoint.Step, state.Run.Train.Steps
	_, diverged := state.Diverged()
	e.Settled = !diverged
	switch {
	case state.Finished && m.Idle:
		e.Message = fmt.Sprintf("finished at step %d; a device that computes nothing makes losses mean nothing", e.Step)
	case state.Finished && e.HeldOut != nil:
		precision := ""
		if text := api.PrecisionText(e.HeldOut, e.HeldOutF32, 3); text != "" {
			precision = " (" + text + ")"
		} else if state.Run.Train.Rounds(state.Plan) {
			precision = " (what lower precision costs was not measured)"
		}
		uniform := math.Log(float64(state.Run.Model.Vocab)) // guessing every token alike
		compared := fmt.Sprintf("%.3f below the uniform %.3f", uniform-*e.HeldOut, uniform)
		if *e.HeldOut > uniform {
			compared = fmt.Sprintf("%.3f above the uniform %.3f: it has learned nothing yet", *e.HeldOut-uniform, uniform)
		}
		e.Message = fmt.Sprintf("finished at step %d: held-out loss %.3f nats a token%s, %s", e.Step, *e.HeldOut, precision, compared)
	case state.Finished:
		e.Message = fmt.Sprintf("finished at step %d", e.Step)
	case e.Step == 0:
		e.Message = fmt.Sprintf("stopped before the first checkpoint; begin again from step 0 with `%s`", config.WayBack(m.Dir, state.Owner(m.Self)))
	default:
		e.Message = fmt.Sprintf("stopped; %s, go on with `%s`", RestText(state, newest), config.WayBack(m.Dir, state.Owner(m.Self)))
	}
	return e
}

// RestText says what a stopped run goes on from, whose layers members that are gone alone have, and which steps are computed again then.
func RestText(state consensus.State, newest plan.Step) string {
	made, again := state.Checkpoint, ""
	switch first := made.Step + 1; {
	case newest == first:
		again = fmt.Sprintf("step %d is computed again", first)
	case newest > first:
		again = fmt.Sprintf("steps %d to %d are computed again", first, newest)
	}
	var gone []string
	for _, l := range made.Layers {
		if len(l.Holding(state)) == 0 {
			for _, p := range l.Holders {
				gone = append(gone, state.NameOf(p))
			}
		}
	}
	switch {
	case len(gone) > 0:
		text := fmt.Sprintf("the checkpoint of step %d needs layers that %s alone had: start one that has them, too", made.Step, names(gone))
		if older, ok := consensus.NewestWhole(state); ok {
			text += fmt.Sprintf(", or the run goes back to step %d", older.Step)
		}
		if again != "" {
			text += "; " + again
		}
		return text
	case again != "":
		return fmt.Sprintf("the checkpoint of step %d is stored, and %s", made.Step, again)
	}
	return fmt.Sprintf("the checkpoint of step %d is safe", made.Step)
}
