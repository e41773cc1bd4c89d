package plan

import (
	"fmt"
	"math"
	"strings"

	"pnode/pipeline/schedule"
)

// ReasonKind says what a reason is about.
type ReasonKind string

// The kinds of reasons.
const (
	// ReasonStepTime names the chosen cut and its predicted step time.
	ReasonStepTime ReasonKind = "step"
	// ReasonBound says what a step spends its time on.
	ReasonBound ReasonKind = "bound"
	// ReasonRounds says how often replicas with local steps make outer steps, and what these take.
	ReasonRounds ReasonKind = "rounds"
	// ReasonReplicas says why there are fewer replicas than were asked for.
	ReasonReplicas ReasonKind = "replicas"
	// ReasonPostValidation says that steps are applied before their commit.
	ReasonPostValidation ReasonKind = "post-validation"
	// ReasonGroups says why each device holds several stages, which micro-batches go through in groups.
	ReasonGroups ReasonKind = "groups"
	// ReasonOrders says why a step of few micro-batches has another order than 1F1B.
	ReasonOrders ReasonKind = "orders"
	// ReasonStageTime says what one stage does and takes.
	ReasonStageTime ReasonKind = "stage"
	// ReasonCodec names a boundary that sends fewer bits, and why.
	ReasonCodec ReasonKind = "codec"
	// ReasonPrecision says that stages do not all compute in float32.
	ReasonPrecision ReasonKind = "precision"
	// ReasonSharding says whether replicas hold the optimizer state in parts.
	ReasonSharding ReasonKind = "shard"
	// ReasonSums says that the order of the run's sums allows no more replicas.
	ReasonSums ReasonKind = "sums"
	// ReasonNextBest names the best plan of another kind, and by how much it is slower.
	ReasonNextBest ReasonKind = "next"
	// ReasonClaim names a node that is counted on with less than it claims.
	ReasonClaim ReasonKind = "claim"
	// ReasonRatio names a device that computes slower or faster than its profile says.
	ReasonRatio ReasonKind = "ratio"
	// ReasonLeftOut names a node without a stage.
	ReasonLeftOut ReasonKind = "left-out"
	// ReasonAssumed names something that nobody measured.
	ReasonAssumed ReasonKind = "assumed"
	// ReasonRelayed names a pair of neighbours whose messages go through another member.
	ReasonRelayed ReasonKind = "relayed"
	// ReasonHolder says how often copies are made, or names a node that keeps them because another one's disk has no
	// room for them.
	ReasonHolder ReasonKind = "holder"
	// ReasonRepaired says that the plan is the one before with few changes.
	ReasonRepaired ReasonKind = "repaired"
	// ReasonMoved says how much state changes its node.
	ReasonMoved ReasonKind = "moved"
)

// Reason is one line of the explanation of a plan.
type Reason struct {
	Kind ReasonKind `json:"kind"`
	Text string     `json:"text"`
	// Nanos is the predicted step time that the line is about, 0 for none.
	Nanos int64 `json:"nanos,omitempty"`
}

// Reasons are a plan's, at most 64 of at most 512 bytes.
type Reasons []Reason

// Lines returns the texts, for people.
func (r Reasons) Lines() []string {
	lines := make([]string, len(r))
	for i, reason := range r {
		lines[i] = reason.Text
	}
	return lines
}

// Number prints an amount for people: 262144 as "262,144".
func Number[Int ~int | ~int64 | ~uint64](n Int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Count returns a number with its noun: "1 stage", "2 stages".
func Count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return Number(n) + " " + what + "es"
	}
	return Number(n) + " " + what + "s"
}

// Permille prints 53 as "5.3%".
func Permille(n int64) string { return fmt.Sprintf("%d.%d%%", n/10, n%10) }

// Time prints the figure of a step or of a part of one, with three or more significant digits; a long one as Duration.
func Time(n schedule.Nanos) string {
	switch {
	case n >= 100e9:
		return Duration(n)
	case n >= 1e9:
		return fmt.Sprintf("%d.%02d s", n/1e9, n%1e9/1e7)
	case n >= 1e6:
		return fmt.Sprintf("%d.%02d ms", n/1e6, n%1e6/1e4)
	default:
		return fmt.Sprintf("%d.%02d us", n/1e3, n%1e3/10)
	}
}

// Duration prints nanoseconds for people in at most two units: "250 ms", "3.2 s", "1 min 15 s", "2 h 10 min", "3 days 4 h".
func Duration[Nanos ~int64](nanos Nanos) string {
	const ms, s, minute, h, day = 1e6, 1e9, 60e9, 3600e9, 24 * 3600e9
	round := func(n, to int64) int64 { return (n + to/2) / to * to }
	two := func(large string, rest, unit int64, small string) string {
		if rest /= unit; rest == 0 {
			return large
		}
		return fmt.Sprintf("%s %d %s", large, rest, small)
	}
	n := min(max(int64(nanos), 0), math.MaxInt64-h) // room to round
	if n > 0 && n < 999.5*ms {
		return fmt.Sprintf("%d ms", round(n, ms)/ms)
	}
	if n = round(n, s/10); n < 10*s && n%s != 0 {
		return fmt.Sprintf("%d.%d s", n/s, n%s/(s/10))
	}
	if n = round(n, s); n < minute {
		return fmt.Sprintf("%d s", n/s)
	}
	if n < 10*minute {
		return two(fmt.Sprintf("%d min", n/minute), n%minute, s, "s")
	}
	if n = round(n, minute); n < h {
		return fmt.Sprintf("%d min", n/minute)
	}
	if n < 2*day {
		return two(fmt.Sprintf("%d h", n/h), n%h, minute, "min")
	}
	n = round(n, h)
	return two(Count(int(n/day), "day"), n%day, h, "h")
}

// Speed prints operations a second.
func Speed(flops int64) string {
	switch {
	case flops >= 1e12:
		return fmt.Sprintf("%d.%d TFLOP/s", flops/1e12, flops%1e12/1e11)
	case flops >= 1e9:
		return fmt.Sprintf("%d.%d GFLOP/s", flops/1e9, flops%1e9/1e8)
	}
	return fmt.Sprintf("%d MFLOP/s", flops/1e6)
}

// Size prints bytes with one digit after the point.
func Size(bytes int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= u.unit {
			return fmt.Sprintf("%d.%d %s", bytes/u.unit, bytes%u.unit*10/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// Bandwidth prints bytes a second the way links are sold.
func Bandwidth(bytesPerS int64) string {
	switch bits := 8 * min(bytesPerS, 1<<59); {
	case bits >= 1e9:
		return fmt.Sprintf("%d.%d Gbit/s", bits/1e9, bits%1e9/1e8)
	case bits >= 1e6:
		return fmt.Sprintf("%d.%d Mbit/s", bits/1e6, bits%1e6/1e5)
	default:
		return fmt.Sprintf("%d kbit/s", bits/1e3)
	}
}
