package claims

import (
	"cmp"
	"math/bits"
	"slices"

	"pnode/planner/plan"
)

const (
	// heldPercent is how long a step may take for a plan to have held, in percent of what was predicted. The same
	// bounds what links and stages explain.
	heldPercent = 150
	// slowPercent is how long a member may say that it computes, in percent of what was planned.
	slowPercent = 150
	// lowerWindows counts the windows in a row that lower a member. One is enough where it has shown less than a
	// part of farTimes of what was counted on.
	lowerWindows, farTimes = 3, 4
	// slackNanos is what a step may take besides: of short steps much is neither computing nor sending.
	slackNanos = 250_000_000
	// maxWait bounds the windows, as a power of 4, for which a member that was lowered before has to hold.
	maxWait = 4
	// longest bounds times: 2 years.
	longest = 1 << 56
)

// Window holds what some steps of a plan took.
type Window struct {
	Generation plan.Generation
	// PredictedNanos is the time of a step by what the plan counted on, ExplainedNanos the time of one with the
	// links as they were measured and the stages as their members say; 0 where that is not known.
	PredictedNanos, ExplainedNanos int64
	// Members of the plan, each once.
	Members []Work
	// Apart: replicas make their steps on their own. Then nobody's steps wait for those of all others, and Work.StepNanos is how long a step of the
	// member's replica took by the rounds, whose ends all others see.
	Apart bool
}

// Work is a member's part in a window.
type Work struct {
	Counted
	// PlannedNanos is how long its busiest device was to compute in a step, ReportedNanos how long that did as it
	// says; 0 where it does not.
	PlannedNanos, ReportedNanos int64
	// StepNanos is the time of a step as it says, 0 where it does not; see also Window.Apart.
	StepNanos int64
}

// Verdict says what a window showed of a member: that the plan held with it or not, and the least speed that it
// had.
type Verdict struct {
	Peer  plan.PeerID
	FLOPS int64
	Held  bool
}

// Rule returns verdicts on those members of whom the window showed something. Owners get none.
func Rule(w Window) (out []Verdict) {
	usual := w.usual()
	for i, m := range w.Members {
		if m.Owner || m.FLOPS == 0 {
			continue
		}
		if v, ok := w.verdict(i, usual); ok {
			out = append(out, v)
		}
	}
	return out
}

// verdict judges a member; usual is how long everybody computes, in percent of what was planned.
func (w Window) verdict(i int, usual int64) (v Verdict, ok bool) {
	m := w.Members[i]
	v.Peer = m.Peer
	if m.slow(usual) {
		v.FLOPS = max(1, mulDiv(m.FLOPS, usual, percent(m.ReportedNanos, m.PlannedNanos)))
		return v, true
	}
	step := w.step(i)
	if step == 0 || w.PredictedNanos <= 0 {
		return v, false
	}
	took := percent(step-slackNanos, w.PredictedNanos)
	if took*100 <= heldPercent*usual {
		v.FLOPS, v.Held = max(m.Shown.FLOPS, m.provenBy(step)), true
		return v, true
	}
	settled := m.FLOPS <= m.Shown.FLOPS
	explained := w.ExplainedNanos > 0 && percent(step, w.ExplainedNanos) <= heldPercent
	if settled || explained || w.someoneSlow(usual) {
		return v, false
	}
	v.FLOPS = max(1, m.Shown.FLOPS, mulDiv(m.FLOPS, usual, took))
	return v, v.FLOPS < m.FLOPS
}

// provenBy returns the least speed of a member that did all its work within a step: more than was counted on where
// the step was short. A member whose share took less than half of the step has shown less than that.
func (m Work) provenBy(stepNanos int64) int64 {
	busy := percent(m.PlannedNanos, stepNanos)
	if busy < 100 {
		busy = min(100, 2*busy)
	}
	high, low := bits.Mul64(uint64(m.FLOPS), uint64(busy))
	if high >= 100 {
		return m.ClaimedFLOPS
	}
	n, _ := bits.Div64(high, low, 100)
	return int64(min(max(n, 1), uint64(m.ClaimedFLOPS)))
}

// usual returns how long members compute that are believed, in percent of what was planned, 100 at least: the
// median, of all members where none is believed. A model that is off is off for all of them.
func (w Window) usual() int64 {
	var believed, all []int64
	for _, m := range w.Members {
		if m.PlannedNanos <= 0 || m.ReportedNanos <= 0 {
			continue
		}
		said := percent(m.ReportedNanos, m.PlannedNanos)
		if all = append(all, said); m.Owner || m.FLOPS <= m.Shown.FLOPS {
			believed = append(believed, said)
		}
	}
	if len(believed) == 0 {
		believed = all
	}
	return max(100, median(believed))
}

// step returns the time of a step as the others say, or have seen, 0 where there are none: on its own word nobody grows, and who
// does all the work has no need to.
func (w Window) step(of int) int64 {
	if w.Apart {
		return min(w.Members[of].StepNanos, longest)
	}
	var others []int64
	for i, m := range w.Members {
		if i != of && m.StepNanos > 0 {
			others = append(others, min(m.StepNanos, longest))
		}
	}
	return median(others)
}

// someoneSlow reports whether a member says itself that it computes for much longer than was planned.
func (w Window) someoneSlow(usual int64) bool {
	return slices.ContainsFunc(w.Members, func(m Work) bool { return m.slow(usual) })
}

// slow reports whether a member says that it computes for much longer than was planned.
func (m Work) slow(usual int64) bool {
	said := percent(min(max(m.ReportedNanos, 0), longest)-slackNanos, m.PlannedNanos)
	return said*100 > slowPercent*usual
}

// median returns the lower one, 0 of none.
func median(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// percent returns part of all in percent, at most a million; 0 where one is not known.
func percent(part, all int64) int64 {
	const most = 1_000_000
	if all <= 0 || part <= 0 {
		return 0
	}
	return min(most, max(1, 100*min(part, longest)/min(all, longest)))
}

// Watch follows the windows of one plan after the other, and says what is worth writing down. The zero value has
// seen nothing.
type Watch struct {
	generation plan.Generation
	low        map[plan.PeerID]int // windows in a row
	held       map[plan.PeerID]int
}

// Note takes a window in. It returns verdicts that change what is known: that a member holds, after more windows the
// more often it did not; and that it does not, after some windows in a row.
func (t *Watch) Note(w Window) (out []Verdict) {
	if t.generation != w.Generation {
		*t = Watch{generation: w.Generation, low: map[plan.PeerID]int{}, held: map[plan.PeerID]int{}}
	}
	low := map[plan.PeerID]int{}
	for _, v := range Rule(w) {
		i := slices.IndexFunc(w.Members, func(m Work) bool { return m.Peer == v.Peer })
		shown, enough := w.Members[i].Shown, false
		if v.Held && shown.Held && v.FLOPS < shown.FLOPS+shown.FLOPS/10 {
			continue // nothing new
		}
		if v.Held {
			t.held[v.Peer]++
			enough = t.held[v.Peer] >= 1<<(2*min(shown.Lowered, maxWait))
		} else {
			low[v.Peer] = t.low[v.Peer] + 1
			enough = low[v.Peer] >= lowerWindows || v.FLOPS < w.Members[i].FLOPS/farTimes
		}
		if _, changes := shown.After(w.Generation, v.FLOPS, v.Held); enough && changes {
			out = append(out, v)
		}
	}
	t.low = low
	slices.SortFunc(out, func(a, b Verdict) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}
