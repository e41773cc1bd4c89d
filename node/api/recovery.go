package api

import "pnode/planner/plan"

// Recovery says how a run that had lost a majority of its voters goes on.
type Recovery struct {
	// By is the node whose log goes on, Without are the voters that are lost, by their names.
	By      string   `json:"by"`
	Without []string `json:"without"`
	// Incarnation is the run's from then on, Step that of its newest checkpoint.
	Incarnation uint64    `json:"incarnation"`
	Step        plan.Step `json:"step"`
	// Follows is set where others had recovered the run before, and the node that was asked follows them from now on: it
	// knows no more than By yet.
	Follows bool `json:"follows,omitempty"`
}
