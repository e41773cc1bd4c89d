package slowlines

import (
	"cmp"
	"slices"
	"time"

	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// lineWindows windows in a row have to show steps of another length than predicted before lines count as they are seen. Where a member
	// says that something became slower, one is enough.
	lineWindows = 3
	// linePercent is how much less a line carries, or how much longer its round trip is, that counts as slow.
	linePercent = 20
	// idleTime is how long a slow line that no plan uses counts as it was seen. It doubles each time that the line is found to be
	// slow, up to mostDoubled times.
	idleTime    = 10 * time.Minute
	mostDoubled = 4
)

// Lines knows the lines of a run that are slower than members' profiles say. Plans count on that, and are compared anew where
// it changes. Whoever may lead follows them, whoever leads. The zero value knows of none.
type Lines struct {
	slow map[[2]plan.PeerID]*slowLine
	// off counts the windows in a row with steps of another length than predicted, the first of which ended with step first.
	off   int
	first plan.Step
	// changes counts how often what is known has changed, since is from which step on the newest of these was seen; 0: nobody saw it.
	changes int
	since   plan.Step
}

// slowLine is one direction of a line.
type slowLine struct {
	seen  planner.MeasuredLink
	known bool      // or it was forgotten
	used  time.Time // when it last was in a plan
	times int       // how often it was found to be slow
}

// Note takes in a window that ended with a step and changes no schedule, after which lines that no plan has used for long are forgotten. Lines of the plan that carry less than the profiles of the state's members
// say are slow once steps are off for so many windows. Those that do not are forgotten then.
func (l *Lines) Note(state consensus.State, r planner.Reselection, seen planner.Measured, step plan.Step, now time.Time, urgent bool) {
	for _, s := range seen.Links {
		if k := l.slow[[2]plan.PeerID{s.From, s.To}]; k != nil {
			k.used = now
		}
	}
	l.forget(now)
	if r.AsPredicted() {
		l.off = 0
		return
	}
	if l.off++; l.off == 1 {
		l.first = step
		if urgent { // a member says so after some slow steps in a row
			l.first = max(step, planner.SlowRow) - planner.SlowRow + 1
		}
	}
	if l.off < lineWindows && !urgent {
		return
	}
	l.off = 0
	changed := false
	for _, s := range seen.Links {
		k := l.slow[[2]plan.PeerID{s.From, s.To}]
		known := k != nil && k.known
		switch slower := slowerThanKnown(state, s); {
		case slower && !(known && alike(k.seen, s)):
			l.add(s, now)
			changed = true
		case !slower && known && s.BytesPerS > 0:
			k.known, changed = false, true
		}
	}
	if changed {
		l.changes, l.since = l.changes+1, l.first
	}
}

// Calm has the windows so far count no more towards slow lines.
func (l *Lines) Calm() { l.off = 0 }

// Changes returns how often what is known has changed.
func (l *Lines) Changes() int { return l.changes }

// Doubts reports whether one of the lines carries less than members measured before, or was seen to.
func (l *Lines) Doubts(state consensus.State, seen []planner.MeasuredLink) bool {
	return slices.ContainsFunc(seen, func(s planner.MeasuredLink) bool {
		k := l.slow[[2]plan.PeerID{s.From, s.To}]
		return k != nil && k.known || slowerThanKnown(state, s)
	})
}

// alike reports whether a line is about what it was.
func alike(a, b planner.MeasuredLink) bool {
	near := func(a, b int64) bool { return min(a, b) == 0 || min(a, b)*100 >= max(a, b)*(100-linePercent) } // 0 of what is not known
	return near(a.BytesPerS, b.BytesPerS) && near(a.RTTNanos, b.RTTNanos)
}

// add counts on a slow line as it was seen.
func (l *Lines) add(s planner.MeasuredLink, now time.Time) {
	if l.slow == nil {
		l.slow = map[[2]plan.PeerID]*slowLine{}
	}
	pair := [2]plan.PeerID{s.From, s.To}
	k := l.slow[pair]
	if k == nil {
		k = &slowLine{}
		l.slow[pair] = k
	}
	if !k.known {
		k.times++
	} else if s.BytesPerS == 0 { // too little was sent to know
		s.BytesPerS = k.seen.BytesPerS
	}
	k.seen, k.known, k.used = s, true, now
}

// With returns slow lines as they were seen, and after them those that were seen last.
func (l *Lines) With(seen []planner.MeasuredLink) (all []planner.MeasuredLink) {
	for _, k := range l.slow {
		if k.known {
			all = append(all, k.seen)
		}
	}
	slices.SortFunc(all, func(a, b planner.MeasuredLink) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return append(all, seen...)
}

// Lasted returns for how many steps up to the newest one lines have been as they are known now; 0 where that was before the plan, or
// nobody saw it.
func (l *Lines) Lasted(p plan.Plan, newest plan.Step) plan.Step {
	if l.since > p.Start && newest >= l.since {
		return newest - l.since + 1
	}
	return 0
}

// slowerThanKnown reports whether a line carries less than members measured before, either way, or takes longer.
func slowerThanKnown(state consensus.State, s planner.MeasuredLink) bool {
	for _, ends := range [][2]plan.PeerID{{s.From, s.To}, {s.To, s.From}} {
		m, _ := state.Member(ends[0])
		for _, p := range m.Profile.Links {
			if p.Peer == ends[1] && p.BytesPerS > 0 {
				return s.BytesPerS > 0 && s.BytesPerS*100 < p.BytesPerS*(100-linePercent) || s.RTTNanos*(100-linePercent) > (p.RTTNanos+2*p.JitterNanos)*100
			}
		}
	}
	return true
}

// forget counts on the profiles again for lines that no plan has used for long.
func (l *Lines) forget(now time.Time) {
	for _, k := range l.slow {
		if k.known && now.Sub(k.used) > idleTime<<min(k.times-1, mostDoubled) {
			k.known = false
			l.changes, l.since = l.changes+1, 0
		}
	}
}
