package progress

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"pnode/node/api"
	"pnode/planner/plan"
)

// AppendJSON appends the line of a committed step, newline included.
func AppendJSON(dst []byte, e api.Event) []byte {
	dst = append(dst, `{"step":`...)
	dst = strconv.AppendUint(dst, uint64(e.Step), 10)
	dst = append(dst, `,"loss":`...)
	dst = appendNumber(dst, &e.Loss, -1)
	dst = append(dst, `,"held_out":`...)
	dst = appendNumber(dst, e.HeldOut, -1)
	if e.HeldOutF32 != nil {
		dst = append(dst, `,"held_out_f32":`...)
		dst = appendNumber(dst, e.HeldOutF32, -1)
	}
	dst = append(dst, `,"tokens_per_s":`...)
	speed := math.Round(e.TokensPerS)
	dst = appendNumber(dst, &speed, 0)
	dst = append(dst, `,"generation":`...)
	dst = strconv.AppendUint(dst, uint64(e.Generation), 10)
	for _, more := range []struct {
		key   string
		value *float64
		known bool
	}{
		{"learning_rate", &e.LearningRate, e.LearningRate != 0},
		{"gradient_norm", e.GradientNorm, e.GradientNorm != nil},
		{"step_s", &e.StepS, e.StepS != 0},
	} {
		if more.known {
			dst = append(append(append(dst, `,"`...), more.key...), `":`...)
			dst = appendNumber(dst, more.value, -1)
		}
	}
	if e.MemoryBytes != 0 {
		dst = strconv.AppendInt(append(dst, `,"memory_bytes":`...), e.MemoryBytes, 10)
	}
	return append(dst, "}\n"...)
}

// appendSample appends the line of a generated text, newline included.
func appendSample(dst []byte, e api.Event) []byte {
	line, err := json.Marshal(struct {
		Step   plan.Step `json:"step"`
		Sample string    `json:"sample"`
	}{e.Step, e.Message})
	if err != nil { // a number and a text have no such thing
		panic(err)
	}
	return append(append(dst, line...), '\n')
}

// underway says what the model writes while the run goes on, each line of it indented.
func underway(e api.Event) string {
	text := strings.TrimRight(clean(e.Message), "\r\n")
	return fmt.Sprintf("the model of step %d writes:\n  %s", e.Step, strings.ReplaceAll(text, "\n", "\n  "))
}

// appendNumber writes v with the shortest digits that read back to it (digits -1) or
// that many decimals, and null for what JSON has no word for.
func appendNumber(dst []byte, v *float64, digits int) []byte {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return append(dst, "null"...)
	}
	if digits < 0 {
		return strconv.AppendFloat(dst, *v, 'g', -1, 64)
	}
	return strconv.AppendFloat(dst, *v, 'f', digits, 64)
}

// stepText is a committed step on one line of less than 80 characters.
func stepText(e api.Event, eta time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "step %d", e.Step)
	if e.Steps > 0 {
		fmt.Fprintf(&b, "/%d", e.Steps)
	}
	fmt.Fprintf(&b, "  loss %.4f", e.Loss)
	if e.HeldOut != nil {
		fmt.Fprintf(&b, "  held-out %.4f", *e.HeldOut)
	}
	if e.TokensPerS > 0 {
		fmt.Fprintf(&b, "  %s tokens/s", plan.Number(int64(e.TokensPerS+0.5)))
	}
	if eta > 0 {
		fmt.Fprintf(&b, "  ETA %s", plan.Duration(wholeSeconds(eta)))
	}
	return b.String()
}

// wholeSeconds rounds what is left up: it is over at 0.
func wholeSeconds(left time.Duration) time.Duration {
	return (left + time.Second - 1).Truncate(time.Second)
}

// Describe is a line about any event but a step.
func Describe(e api.Event) string {
	switch text := strings.Join(strings.Fields(clean(e.Message)), " "); e.Kind {
	case api.KindState:
		if text == stateWaiting && e.Generation == 0 {
			return "state: waiting for the first plan"
		}
		return "state: " + stateText(text)
	case api.KindPlan:
		return "plan: " + text
	case api.KindOuter:
		return "outer step: " + text
	case api.KindCheckpoint:
		return fmt.Sprintf("checkpoint: step %d", e.Step)
	case api.KindError:
		return "error: " + text
	case api.KindDone:
		return "done: " + text
	default:
		return fmt.Sprintf("%s: %s", e.Kind, text)
	}
}

// stateWaiting names the state of a node without a part of a plan.
const stateWaiting = "waiting"

// stateTexts say what the states of a node mean.
var stateTexts = map[string]string{
	"joining":    "joining the run",
	"profiling":  "measuring this machine and getting the text",
	stateWaiting: "standby, without a part of a plan",
	"loading":    "loading this node's part of the model",
	"draining":   "leaving, once others have what this node has",
	"serving":    "finished, staying for machines that still need this one",
}

// stateText returns a state in words for people.
func stateText(state string) string {
	if text := stateTexts[state]; text != "" {
		return text
	}
	return clean(state)
}

// clean replaces what a terminal would obey, and bytes that are no UTF-8, by a mark: control
// characters other than newlines, with a carriage return or without, and tabs; and what turns the
// order of other text around. Spaces of all kinds and joiners stay.
func clean(text string) string {
	const lineEnd = "\r\n"
	lines := strings.Split(text, lineEnd)
	for i, line := range lines {
		lines[i] = strings.Map(func(r rune) rune {
			overrides := '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069'
			if overrides || unicode.IsControl(r) && r != '\n' && r != '\t' {
				return unicode.ReplacementChar
			}
			return r
		}, line)
	}
	return strings.Join(lines, lineEnd)
}
