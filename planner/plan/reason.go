package plan

import (
	"fmt"
	"strings"
)

// ReasonKind says what a reason is about.
type ReasonKind string

// The kinds of reasons.
const (
	// ReasonStepTime is the chosen cut and its predicted step time.
	ReasonStepTime ReasonKind = "step"
	// ReasonBound is what a step spends its time on.
	ReasonBound ReasonKind = "bound"
	// ReasonGroups is why each device holds several stages, which micro-batches go through in groups.
	ReasonGroups ReasonKind = "groups"
	// ReasonStageTime is what one stage does and takes.
	ReasonStageTime ReasonKind = "stage"
	// ReasonCodec is a boundary that sends fewer bits, and why.
	ReasonCodec ReasonKind = "codec"
	// ReasonPrecision is that stages do not all compute in float32.
	ReasonPrecision ReasonKind = "precision"
	// ReasonSharding is whether replicas hold the optimizer state in parts.
	ReasonSharding ReasonKind = "shard"
	// ReasonNextBest is the best plan of another kind, and by how much it is slower.
	ReasonNextBest ReasonKind = "next"
	// ReasonLeftOut is a node without a stage.
	ReasonLeftOut ReasonKind = "left-out"
	// ReasonAssumed is something that nobody measured.
	ReasonAssumed ReasonKind = "assumed"
	// ReasonHolder names a node that keeps copies because another one's disk has no room for them.
	ReasonHolder ReasonKind = "holder"
	// ReasonMoved is how much state changes hands.
	ReasonMoved ReasonKind = "moved"
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
		if reason.Kind == ReasonStepTime {
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
func Permille(n int64) string { return fmt.Sprintf("%d.%d%%", n/10, n%10) }
