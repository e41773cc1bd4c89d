package simulate

import (
	"fmt"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Lost says what took time and brought no step further, in nanoseconds.
type Lost struct {
	// Extended is by how much losses made steps longer, GivenUp the time of steps that were not finished, Changing that of
	// changes of plan with what comes before them: until a loss was noticed, and replays.
	Extended int64 `json:"extended_ns"`
	GivenUp  int64 `json:"given_up_ns"`
	Changing int64 `json:"changing_ns"`
	// Redone is the time of steps that were done again, Saving that of steps that stopped for checkpoints.
	Redone int64 `json:"redone_ns"`
	Saving int64 `json:"saving_ns"`
	// Redundant is what a policy computes besides, Waiting the time without enough machines.
	Redundant int64 `json:"redundant_ns"`
	Waiting   int64 `json:"waiting_ns"`
}

// Sample describes a run from a moment on.
type Sample struct {
	AtNanos  int64 `json:"at_ns"`
	Machines int   `json:"machines"`
	// StepNanos is the time of a step, 0 where there was none.
	StepNanos int64 `json:"step_ns"`
	// Done counts the steps that were done by then and count so far.
	Done int64 `json:"done"`
}

// Result is how a run went under a policy.
type Result struct {
	Policy    string `json:"policy"`
	Constants string `json:"constants"`
	// StartNanos is when the first step began, WallNanos how long the run went on from then.
	StartNanos int64 `json:"start_ns"`
	WallNanos  int64 `json:"wall_ns"`
	// UsefulNanos is the time of the steps that counted in the end, UnderWayNanos that of the one at the end of the trace, which
	// is part of it. KeptPermyriad is UsefulNanos of WallNanos, in ten thousandths: the effective time kept.
	UsefulNanos   int64 `json:"useful_ns"`
	UnderWayNanos int64 `json:"under_way_ns"`
	KeptPermyriad int64 `json:"kept_permyriad"`
	Lost          Lost  `json:"lost"`
	// Steps counts those that counted, Redone those that were done again, GivenUp those that were not finished.
	Steps   int64 `json:"steps"`
	Redone  int64 `json:"redone"`
	GivenUp int   `json:"given_up"`
	// Tokens is how many the steps trained on, TokensPerS the mean rate over WallNanos.
	Tokens     int64 `json:"tokens"`
	TokensPerS int64 `json:"tokens_per_s"`
	// MachineNanos is how long machines were there, all of them together.
	MachineNanos int64 `json:"machine_ns"`
	// Joins, Notices and Losses count the trace's events. Left are the losses of machines that had handed over by then, Answered
	// the times at which machines with a part were lost, Carried those at which the step went on, Rollbacks those at which the
	// run went back to a checkpoint.
	Joins     int `json:"joins"`
	Notices   int `json:"notices"`
	Losses    int `json:"losses"`
	Left      int `json:"left"`
	Answered  int `json:"answered"`
	Carried   int `json:"carried"`
	Rollbacks int `json:"rollbacks"`
	// Changes counts changes of plan, MovedBytes the state that went over lines for them.
	Changes    int   `json:"changes"`
	MovedBytes int64 `json:"moved_bytes"`
	// Samples are what the run was like, in order of time.
	Samples []Sample `json:"samples,omitempty"`
}

// close completes a result at the end of a run.
func (r *Result) close(p progress, end int64, run plan.RunSpec) {
	if r.StartNanos < 0 {
		r.StartNanos = end
	}
	r.WallNanos = end - r.StartNanos
	r.UsefulNanos = p.usefulNanos + r.UnderWayNanos
	r.Lost.Redone, r.Redone, r.Steps = p.redoneNanos, p.redone, p.done
	r.Tokens = mulDiv(p.done, int64(run.Train.Micros)*int64(run.Train.MicroBatch)*int64(run.Model.Context), 1)
	if r.WallNanos > 0 {
		r.KeptPermyriad = mulDiv(r.UsefulNanos, 10_000, r.WallNanos)
		r.TokensPerS = mulDiv(r.Tokens, second, r.WallNanos)
	}
}

// Cost returns what a run costs at a price of a machine for an hour, in thousandths of the price's unit, and how many tokens one
// unit buys.
func (r Result) Cost(pricePerHourMillis int64) (millis, tokensPerUnit int64) {
	millis = mulDiv(r.MachineNanos, pricePerHourMillis, 3600*second)
	return millis, mulDiv(r.Tokens, 1000, max(millis, 1))
}

// Kept prints the effective time kept, as ".955".
func (r Result) Kept() string {
	rounded := (r.KeptPermyriad + 5) / 10
	if rounded >= 1000 {
		return "1.00"
	}
	return fmt.Sprintf(".%03d", rounded)
}

// Why says in words where the time went that was not kept, the most first; empty where all was.
func (r Result) Why() string {
	l := r.Lost
	parts := []struct {
		nanos int64
		what  string
	}{
		{l.Extended, "in steps that losses made longer"},
		{l.GivenUp, "in steps that were given up"},
		{l.Changing, "for changes of plan"},
		{l.Redone, "in steps done again"},
		{l.Saving, "for checkpoints"},
		{l.Redundant, "for redundant computation"},
		{l.Waiting, "waiting for machines"},
	}
	var texts []string
	for range parts {
		most := 0
		for i, p := range parts {
			if p.nanos > parts[most].nanos {
				most = i
			}
		}
		if share := mulDiv(parts[most].nanos, 1000, max(r.WallNanos, 1)); share > 0 {
			texts = append(texts, plan.Permille(share)+" "+parts[most].what)
		}
		parts[most].nanos = 0
	}
	return strings.Join(texts, ", ")
}

// Mean returns the mean time of the steps that counted.
func (r Result) Mean() schedule.Nanos {
	return schedule.Nanos((r.UsefulNanos - r.UnderWayNanos) / max(r.Steps, 1))
}
