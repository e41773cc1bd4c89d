package api

import (
	"fmt"
	"strings"

	"pnode/planner/plan"
)

// Recovery says how a run that had lost a majority of its voters goes on.
type Recovery struct {
	// By is the node whose log goes on, Without are the voters that are lost, by their names.
	By      string   `json:"by"`
	Without []string `json:"without"`
	// Incarnation is the run's from then on, Step that of the newest checkpoint which is whole with the living, Newest the newest step that
	// the node which was asked knows to be committed. The run goes on from the newest state in between of which the living have all parts.
	Incarnation uint64    `json:"incarnation"`
	Step        plan.Step `json:"step"`
	Newest      plan.Step `json:"newest"`
	// Lost is set, and Step 0, where no checkpoint is whole with the living.
	Lost bool `json:"lost,omitempty"`
	// Follows is set where others had recovered the run before, and the node that was asked follows them from now on: it
	// knows no more than By yet.
	Follows bool `json:"follows,omitempty"`
}

// Text tells people how the run goes on.
func (r Recovery) Text() string {
	if r.Follows {
		return r.By + " goes on with the run: this node joins it again"
	}
	from := fmt.Sprintf("the checkpoint of step %d", r.Step)
	switch {
	case r.Lost:
		from = "the newest state of which the living have all parts, as soon as there is one: no checkpoint is whole with them"
	case r.Newest > r.Step:
		from = fmt.Sprintf("the newest state of which the living have all parts: that of step %d, and %s at the oldest", r.Newest, from)
	}
	return fmt.Sprintf("%s goes on with the run, without %s: incarnation %d, from %s", r.By, strings.Join(r.Without, ", "), r.Incarnation, from)
}
