package ledger

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"pnode/planner/plan"
)

// ErrWrong is wrapped by Report.Err.
var ErrWrong = errors.New("ledger: the audit found what must not happen")

// maxProblems bounds the problems that a report names; the rest is counted.
const maxProblems = 20

// Report is the result of an audit. Samples are rows of training data.
type Report struct {
	Run         plan.RunID         `json:"run"`
	Nodes       []NodeReport       `json:"nodes"`
	Steps       plan.Step          `json:"steps"` // the last committed one
	Generations []GenerationReport `json:"generations"`
	// Samples entered in committed steps; Recorded of them by the records of all who computed them, the others by
	// the commits of the step.
	Samples  int `json:"samples"`
	Recorded int `json:"recorded"`
	// Told are steps that nobody who took their commit has a record of: members of their plans told others, of ToldByOne
	// one member alone.
	Told      int `json:"told"`
	ToldByOne int `json:"told_by_one"`
	Lost      int `json:"lost"`
	// Given are samples that came back from replicas whose local steps did not count, and have not been taken again so far.
	Given   int `json:"given,omitempty"`
	Doubled int `json:"doubled"`
	// Redone are steps that were committed and then computed again by a later generation.
	Redone []Redone `json:"redone"`
	// Discarded are steps that do not count since the run was recovered without them.
	Discarded []Discarded `json:"discarded,omitempty"`
	// Replayed counts steps of lost workers that another node computed again.
	Replayed    int          `json:"replayed"`
	Differences []Difference `json:"differences"`
	Problems    []string     `json:"problems"`
	// Notes say what a ledger lacks that the others have: nothing is wrong with the run.
	Notes []string `json:"notes,omitempty"`
	// MoreProblems are not in Problems.
	MoreProblems int `json:"more_problems,omitempty"`
}

// NodeReport says what there was of a node.
type NodeReport struct {
	Name         string      `json:"name"`
	Dir          string      `json:"dir"`
	Peer         plan.PeerID `json:"peer"`
	Entries      int         `json:"entries"`
	DamagedBytes int64       `json:"damaged_bytes"`
	// Short: the ledger ends before what its folder or other ledgers say that the node came to.
	Short bool `json:"short,omitempty"`
}

// GenerationReport says which committed steps a generation made.
type GenerationReport struct {
	Generation plan.Generation `json:"generation"`
	First      plan.Step       `json:"first"`
	Last       plan.Step       `json:"last"`
	Nodes      []string        `json:"nodes"`
}

// Redone are steps of a generation that do not count.
type Redone struct {
	Generation plan.Generation `json:"generation"`
	After      plan.Generation `json:"after"`
	First      plan.Step       `json:"first"`
	Last       plan.Step       `json:"last"`
	Why        string          `json:"why"`
}

// Discarded are steps that a node took in a lineage of the log that it gave up.
type Discarded struct {
	Node       string          `json:"node"`
	Generation plan.Generation `json:"generation"`
	First      plan.Step       `json:"first"`
	Last       plan.Step       `json:"last"`
}

// Difference is a step of which two nodes tell different commits.
type Difference struct {
	Step            plan.Step       `json:"step"`
	Generation      plan.Generation `json:"generation"`
	Node            string          `json:"node"`
	Loss            string          `json:"loss"`
	OtherGeneration plan.Generation `json:"other_generation"`
	OtherNode       string          `json:"other_node"`
	OtherLoss       string          `json:"other_loss"`
}

// RedoneSteps counts the steps that were computed again.
func (r Report) RedoneSteps() (n int) {
	for _, d := range r.Redone {
		n += int(d.Last - d.First + 1)
	}
	return n
}

// Err returns what is wrong, nil where nothing is.
func (r Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	more := ""
	if n := len(r.Problems) - 1 + r.MoreProblems; n > 0 {
		more = fmt.Sprintf(", and %s", plan.Count(n, "other problem"))
	}
	return fmt.Errorf("%w: %s%s", ErrWrong, r.Problems[0], more)
}

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) == maxProblems {
		r.MoreProblems++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// stepsOf names the steps of a range: "step 3", "steps 3 to 5".
func stepsOf(first, last plan.Step) string {
	if first == last {
		return fmt.Sprintf("step %d", first)
	}
	return fmt.Sprintf("steps %d to %d", first, last)
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	run := "run " + string(r.Run)
	if r.Run == "" {
		run = "a run that no ledger names"
	}
	fmt.Fprintf(&b, "%s: %s committed, from the ledgers of %s\n", run, plan.Count(int(r.Steps), "step"), plan.Count(len(r.Nodes), "node"))
	for _, n := range r.Nodes {
		if n.Peer == "" {
			fmt.Fprintf(&b, "  %s has no ledger: its node never learned a plan, or it was deleted\n", n.Dir)
		}
	}
	for _, g := range r.Generations {
		fmt.Fprintf(&b, "  generation %d: %s by %s\n", g.Generation, stepsOf(g.First, g.Last), strings.Join(g.Nodes, ", "))
	}
	fmt.Fprintf(&b, "samples: %d counted (%d by the records of all who computed them, %d by commits), %d lost, %d doubled\n",
		r.Samples, r.Recorded, r.Samples-r.Recorded, r.Lost, r.Doubled)
	if r.Given > 0 {
		fmt.Fprintf(&b, "samples given back by replicas whose steps did not count: %d, which come later\n", r.Given)
	}
	if r.Told > 0 {
		fmt.Fprintf(&b, "steps without a record of who computed them: %d, counted by what members of their plans told others (%d by the word of one alone)\n", r.Told, r.ToldByOne)
	}
	fmt.Fprintf(&b, "computed twice: %s redone, %d replayed\n", plan.Count(r.RedoneSteps(), "step"), r.Replayed)
	for _, d := range r.Redone {
		fmt.Fprintf(&b, "  %s of generation %d: %s\n", stepsOf(d.First, d.Last), d.Generation, d.Why)
	}
	for _, d := range r.Discarded {
		fmt.Fprintf(&b, "discarded: %s of %s in generation %d, which the run was recovered without\n", stepsOf(d.First, d.Last), d.Node, d.Generation)
	}
	fmt.Fprintf(&b, "steps with different losses: %d\n", len(r.Differences))
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "wrong: %s\n", p)
	}
	if r.MoreProblems > 0 {
		fmt.Fprintf(&b, "wrong: %s more\n", plan.Count(r.MoreProblems, "problem"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
