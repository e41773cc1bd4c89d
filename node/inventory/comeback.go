package inventory

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pnode/node/config"
	"pnode/node/plain"
)

// ErrSeveral means that nobody said to which of several unfinished runs a node should come back.
var ErrSeveral = errors.New("several unfinished runs are on this machine")

// mostNamed bounds the runs that an error names.
const mostNamed = 5

// ComeBack returns the one node of this machine that ended before its run did; of a run of local nodes one of them. ok is false where there
// is none. The error wraps ErrSeveral, and has the command that goes on with each run; or config.ErrNoRun, where nodes of such runs are up.
func (i Inventory) ComeBack(ctx context.Context) (n Node, ok bool, err error) {
	return comeBack(i.List(ctx))
}

func comeBack(all []Node) (n Node, ok bool, err error) {
	var ended []Node
	var up []string
	for _, n := range all {
		switch {
		case n.State == Finished:
		case n.Running:
			up = append(up, fmt.Sprintf("`%s` shows the one in %s", n.Next, n.Dir))
		case !slices.ContainsFunc(ended, func(e Node) bool { return e.Next == n.Next }): // local nodes have one command
			ended = append(ended, n)
		}
	}
	switch {
	case len(ended) == 1:
		return ended[0], true, nil
	case len(ended) > 1:
		return Node{}, false, several(ended)
	case len(up) > 0:
		return Node{}, false, fmt.Errorf("%w to come back to: what is unfinished on this machine runs: %s. To join another run, give its invite", config.ErrNoRun, few(up))
	}
	return Node{}, false, nil
}

// several says how to go on with each of the runs.
func several(ended []Node) error {
	var ways []string
	for _, n := range ended {
		ways = append(ways, fmt.Sprintf("`%s` (%s)", n.Next, n.Progress()))
	}
	return fmt.Errorf("%w: choose one: %s", ErrSeveral, few(ways))
}

// few joins the first of some words.
func few(words []string) string {
	text := strings.Join(words[:min(mostNamed, len(words))], ", ")
	if more := len(words) - mostNamed; more > 0 {
		text += fmt.Sprintf(", and %d more: `pnode ps` lists them", more)
	}
	return text
}

// Progress says how far the node's run is known to be here.
func (n Node) Progress() string {
	switch {
	case n.Step == 0:
		return "before its first checkpoint"
	case n.Steps == 0:
		return fmt.Sprintf("at step %d", n.Step)
	}
	return fmt.Sprintf("at step %d of %d", n.Step, n.Steps)
}

// Folder returns what --dir names for a node: its own folder, or that of the run of local nodes to which it belongs.
func (n Node) Folder() string {
	if run := filepath.Dir(n.Dir); strings.HasSuffix(n.Next, " --dir "+plain.Quote(run)) {
		return run
	}
	return n.Dir
}
