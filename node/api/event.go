package api

import (
	"encoding/json"
	"math"

	"pnode/planner/plan"
)

// Kind says what an Event reports and which of its fields count.
type Kind string

// The kinds of events. All of them carry Generation and, where there is one, Step.
const (
	// KindStep is a committed step: Loss, HeldOut and HeldOutF32 if measured, TokensPerS, LearningRate, and GradientNorm and StepS where they are known.
	KindStep Kind = "step"
	// KindState is a change of the node's state, named by Message.
	KindState Kind = "state"
	// KindPlan is a new generation, described by Message.
	KindPlan Kind = "plan"
	// KindOuter says in Outer, and for people in Message, how an outer step of replicas with local steps was. Step is its newest one.
	KindOuter Kind = "outer"
	// KindSchedule is another order of computing from Step on, described by Message.
	KindSchedule Kind = "schedule"
	// KindCheckpoint is a committed checkpoint of Step.
	KindCheckpoint Kind = "checkpoint"
	// KindSample is text in Message that the model of Step has written. Steps says that the run goes on after Step: the text at its end has none.
	KindSample Kind = "sample"
	// KindDrain says in Message how far this node's way out of the run has come. Step is the newest checkpoint that the
	// others can have without it.
	KindDrain Kind = "drain"
	// KindDone is the end of the run, with a summary in Message. The node may stay a while for the others.
	KindDone Kind = "done"
	// KindModel says in Message where the finished model is, and how to use it.
	KindModel Kind = "model"
	// KindWaiting says in Message why nothing moves.
	KindWaiting Kind = "waiting"
	// KindMember is a change of the roster: who joined, leaves or is gone, and why, in Message.
	KindMember Kind = "member"
	// KindSpare says in Message what a member without a stage would add to the plan that runs.
	KindSpare Kind = "spare"
	// KindSubstitute says in Message who is lost, and who computes its part of the same generation. Step is the newest one
	// that this node knew.
	KindSubstitute Kind = "substitute"
	// KindInterruption says in Interruption, and for people in Message, how long it took from the newest step of a plan
	// to the first step of the next one, or of the same one with a substitute. Step is the latter.
	KindInterruption Kind = "interruption"
	// KindRecovery says in Message that the run went on from another state than this node knew, as after a recovery, and what of this
	// node's work does not count any more.
	KindRecovery Kind = "recovery"
	// KindWarning says in Message what fails that the run goes on without, and what can be done.
	KindWarning Kind = "warning"
	// KindError is a failure that the node goes on after or ends with, in Message.
	KindError Kind = "error"
)

// Event is one thing that happened on a node.
type Event struct {
	// Seq counts the events of one node process from 1; Hub assigns it.
	Seq        uint64          `json:"seq"`
	Kind       Kind            `json:"kind"`
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
	// Steps is the run's last step; 0 is unknown.
	Steps plan.Step `json:"steps,omitempty"`
	// Loss is the mean training loss of Step in nats per token. A loss that is not a
	// finite number is null in JSON and NaN when read back.
	Loss float64 `json:"loss"`
	// HeldOut is the held-out loss after Step; nil when it was not measured.
	HeldOut *float64 `json:"held_out"`
	// HeldOutF32 is the same with every stage in float32; nil where all are, or where it was not
	// measured.
	HeldOutF32 *float64 `json:"held_out_f32,omitempty"`
	TokensPerS float64  `json:"tokens_per_s"`
	// LearningRate is that of Step's update, GradientNorm the norm of its gradient before clipping, StepS how long the step took on a
	// node that computed it. 0 or nil: not known.
	LearningRate float64  `json:"learning_rate,omitempty"`
	GradientNorm *float64 `json:"gradient_norm,omitempty"`
	StepS        float64  `json:"step_s,omitempty"`
	// MemoryBytes of the machine's memory were taken by the process of the node that tells the event; 0: not known.
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	Message     string `json:"message,omitempty"`
	// Settled reports, with KindDrain and KindDone, that whoever ends the node at once gives nothing up.
	Settled bool `json:"settled,omitempty"`
	// Votes reports, with KindDrain, that the others are no majority without this node, which has not given its vote away yet.
	Votes bool `json:"votes,omitempty"`
	// Interruption is there with KindInterruption alone.
	Interruption *Interruption `json:"interruption,omitempty"`
	// Outer is there with KindOuter alone.
	Outer *OuterStep `json:"outer,omitempty"`
}

// plainEvent is an Event without its methods.
type plainEvent Event

// eventJSON shadows Loss by a pointer, which can be null.
type eventJSON struct {
	plainEvent
	Loss *float64 `json:"loss"`
}

// MarshalJSON writes numbers that JSON has no word for as null.
func (e Event) MarshalJSON() ([]byte, error) {
	w := eventJSON{plainEvent: plainEvent(e), Loss: finite(&e.Loss)}
	w.HeldOut, w.HeldOutF32, w.GradientNorm = finite(e.HeldOut), finite(e.HeldOutF32), finite(e.GradientNorm)
	if finite(&e.TokensPerS) == nil {
		w.TokensPerS = 0
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Event) UnmarshalJSON(b []byte) error {
	var w eventJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*e = Event(w.plainEvent)
	e.Loss = math.NaN()
	if w.Loss != nil {
		e.Loss = *w.Loss
	}
	return nil
}

// finite is v, or nil when it points to a NaN or an infinity.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}
