package schedule

import (
	"fmt"
	"slices"
	"strconv"
)

// Replica counts the copies of the model in a plan, from 0.
type Replica int

// Stage counts the contiguous layer ranges of one replica, from 0 (holds the embedding).
type Stage int

// Micro counts the micro-batches of one step within the whole run (all replicas), from 0.
type Micro int

// Op names the work of an action. The zero value is invalid.
type Op uint8

// The operations. A receive never blocks a worker by itself: a compute action waits for
// its message; a send is asynchronous.
const (
	_ Op = iota
	// Forward computes a stage's output for one micro-batch and keeps what its
	// backward needs.
	Forward
	// Backward computes input and weight gradient: BackwardInput, then BackwardWeight.
	Backward
	// BackwardInput computes the input gradient only.
	BackwardInput
	// BackwardWeight accumulates the weight gradient only, after BackwardInput.
	BackwardWeight
	// Recompute restores saved activations from the stage's input ahead of a backward.
	Recompute
	// SendActivation sends the stage's output to the next stage.
	SendActivation
	// ReceiveActivation receives the stage's input from the previous stage.
	ReceiveActivation
	// SendGradient sends the stage's input gradient to the previous stage.
	SendGradient
	// ReceiveGradient receives the stage's output gradient from the next stage.
	ReceiveGradient
	// Gather collects a stage's parameters, which its replicas updated in parts.
	Gather
	// Reduce sums a stage's gradients over the replicas.
	Reduce
	// Step applies the optimizer to everything the worker holds. Its replica, stage and
	// micro are 0.
	Step
	opCount
)

var opNames = [opCount]string{
	Forward: "F", Backward: "B", BackwardInput: "I", BackwardWeight: "W", Recompute: "R",
	SendActivation: "SA", ReceiveActivation: "RA", SendGradient: "SG", ReceiveGradient: "RG",
	Gather: "GATHER", Reduce: "REDUCE", Step: "STEP",
}

// String is the op's name in the text form: "F", "SA", "REDUCE".
func (o Op) String() string {
	if o == 0 || o >= opCount {
		return "invalid(" + strconv.Itoa(int(o)) + ")"
	}
	return opNames[o]
}

// hasMicro reports whether the op is about one micro-batch, not about the whole stage.
func (o Op) hasMicro() bool { return o >= Forward && o <= ReceiveGradient }

// communicates reports whether the op is a send or a receive.
func (o Op) communicates() bool { return o >= SendActivation && o <= ReceiveGradient }

// Action is one entry of a worker's program: a comparable value.
type Action struct {
	Op      Op
	Replica Replica
	Stage   Stage
	Micro   Micro
}

// MaxNumber bounds replica, stage and micro in the text form.
const MaxNumber = 1 << 20

// String is the text form: `2F0`, `r1/2SA0`, `2REDUCE`, `STEP`.
func (a Action) String() string { return string(a.appendText(nil)) }

func (a Action) appendText(b []byte) []byte {
	if a.Op == Step {
		return append(b, opNames[Step]...)
	}
	if a.Replica != 0 {
		b = append(b, 'r')
		b = strconv.AppendInt(b, int64(a.Replica), 10)
		b = append(b, '/')
	}
	b = strconv.AppendInt(b, int64(a.Stage), 10)
	b = append(b, a.Op.String()...)
	if a.Op.hasMicro() {
		b = strconv.AppendInt(b, int64(a.Micro), 10)
	}
	return b
}

// ParseAction reads the text form of one action. It accepts canonical text only:
// ParseAction(t) succeeds exactly when the result prints as t.
func ParseAction(text string) (Action, error) {
	if text == opNames[Step] {
		return Action{Op: Step}, nil
	}
	var a Action
	rest, ok := text, true
	if rest != "" && rest[0] == 'r' {
		var n int
		n, rest, ok = cutNumber(rest[1:])
		if !ok || n == 0 || rest == "" || rest[0] != '/' {
			return Action{}, badAction(text)
		}
		a.Replica, rest = Replica(n), rest[1:]
	}
	stage, rest, ok := cutNumber(rest)
	if !ok {
		return Action{}, badAction(text)
	}
	a.Stage = Stage(stage)
	letters := 0
	for letters < len(rest) && rest[letters] >= 'A' && rest[letters] <= 'Z' {
		letters++
	}
	if a.Op = Op(max(0, slices.Index(opNames[:], rest[:letters]))); a.Op == 0 || a.Op == Step {
		return Action{}, badAction(text)
	}
	rest = rest[letters:]
	if a.Op.hasMicro() {
		var n int
		if n, rest, ok = cutNumber(rest); !ok {
			return Action{}, badAction(text)
		}
		a.Micro = Micro(n)
	}
	if rest != "" {
		return Action{}, badAction(text)
	}
	return a, nil
}

// cutNumber reads decimal digits without leading zeros, at most MaxNumber.
func cutNumber(s string) (n int, rest string, ok bool) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' && n <= MaxNumber {
		n = n*10 + int(s[i]-'0')
		i++
	}
	if i == 0 || n > MaxNumber || (s[0] == '0' && i > 1) {
		return 0, s, false
	}
	return n, s[i:], true
}

func badAction(text string) error {
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return fmt.Errorf("%w: action %q, want for example 2F0, r1/2SA0, 2REDUCE or STEP with numbers up to %d", ErrBadText, text, MaxNumber)
}
