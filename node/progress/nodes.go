package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"pnode/node/inventory"
	"pnode/node/plain"
)

// Nodes writes a few lines for each node of this machine: what it does, where, and the command that helps.
func Nodes(w io.Writer, all []inventory.Node, now time.Time) error {
	var b strings.Builder
	for i, n := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s%s\n", clean(n.Name), nodeState(n), nodeSince(n, now))
		fmt.Fprintf(&b, "  run %s in %s\n", clean(string(n.Run)), clean(n.Dir))
		if n.Waiting != "" {
			fmt.Fprintf(&b, "  waits: %s\n", clean(n.Waiting))
		}
		fmt.Fprintf(&b, "  %s\n", clean(n.Next))
	}
	if len(all) == 0 {
		b.WriteString("no nodes of yours are on this machine: start a run with `pnode train`, or enter one with `pnode join INVITE`\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("progress: write: %w", err)
	}
	return nil
}

func nodeState(n inventory.Node) string {
	state := clean(n.State)
	if n.Running { // those of the inventory stay as they are
		state = stateText(n.State)
	}
	if n.Waiting != "" {
		state = "waiting"
	}
	switch {
	case n.Step == 0 && !n.Running:
		return state + " before its first checkpoint"
	case n.Steps == 0 || n.Step == n.Steps:
		return fmt.Sprintf("%s at step %d", state, n.Step)
	}
	return fmt.Sprintf("%s at step %d of %d", state, n.Step, n.Steps)
}

func nodeSince(n inventory.Node, now time.Time) string {
	var facts []string
	if n.PID != 0 {
		facts = append(facts, fmt.Sprintf("pid %d", n.PID))
	}
	if !n.Since.IsZero() {
		facts = append(facts, "since "+plain.Moment(n.Since.Local(), now, "15:04"))
	}
	if len(facts) == 0 {
		return ""
	}
	return " (" + strings.Join(facts, ", ") + ")"
}
