package planner

import (
	"fmt"
	"strings"
)

// ReasonKind says what a reason is about.
type ReasonKind string

// The kinds of reasons.
const (
	// StepTime is the chosen cut and its predicted step time.
	StepTime ReasonKind = "step"
	// Bound is what a step spends its time on.
	Bound ReasonKind = "bound"
	// Groups is why each device holds several stages, which micro-batches go through in groups.
	Groups ReasonKind = "groups"
	// StageTime is what one stage does and takes.
	StageTime ReasonKind = "stage"
	// Codec is a boundary that sends fewer bits, and why.
	Codec ReasonKind = "codec"
	// Precision is that stages do not all compute in float32.
	Precision ReasonKind = "precision"
	// Sharding is whether replicas hold the optimizer state in parts.
	Sharding ReasonKind = "shard"
	// NextBest is the best plan of another kind, and by how much it is slower.
	NextBest ReasonKind = "next"
	// LeftOut is a node without a stage.
	LeftOut ReasonKind = "left-out"
	// Assumed is something that nobody measured.
	Assumed ReasonKind = "assumed"
	// Moved is how much state changes hands.
	Moved ReasonKind = "moved"
)

// Reason is one line of why a plan is as it is.
type Reason struct {
	Kind ReasonKind `json:"kind"`
	Text string     `json:"text"`
	// Nanos is the predicted step time that the line is about, 0 for none.
	Nanos int64 `json:"nanos,omitempty"`
}

// Reasons are a plan's, at most 64 of at most 512 bytes.
type Reasons []Reason

// Lines are the texts, for people.
func (r Reasons) Lines() []string {
	lines := make([]string, len(r))
	for i, reason := range r {
		lines[i] = reason.Text
	}
	return lines
}

// StepNanos is the predicted time of a step, 0 when there is none.
func (r Reasons) StepNanos() int64 {
	for _, reason := range r {
		if reason.Kind == StepTime {
			return reason.Nanos
		}
	}
	return 0
}

// Count is a number with its noun: "1 stage", "2 stages".
func Count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// permille prints 53 as "5.3%".
func permille(n int64) string { return fmt.Sprintf("%d.%d%%", n/10, n%10) }
