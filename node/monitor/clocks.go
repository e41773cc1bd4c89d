package monitor

import (
	"fmt"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/clock"
)

// astrayTime is how long a clock must be off before that is told: a machine that wakes up hears from the others first.
const astrayTime = 5 * time.Second

// clockWatch knows since when each member's clock is off, and whether that was told. It belongs to whoever calls ShowClocks.
type clockWatch map[plan.PeerID]*struct {
	since time.Time
	told  bool
}

// news returns the clocks that are to be told of at time now.
func (w clockWatch) news(off []clock.Astray, now time.Time) (tell []clock.Astray) {
	still := map[plan.PeerID]bool{}
	for _, a := range off {
		still[a.Member] = true
		if w[a.Member] == nil {
			w[a.Member] = &struct {
				since time.Time
				told  bool
			}{since: now}
		}
		if seen := w[a.Member]; !seen.told && now.Sub(seen.since) >= astrayTime {
			seen.told = true
			tell = append(tell, a)
		}
	}
	for p := range w {
		if !still[p] {
			delete(w, p)
		}
	}
	return tell
}

// clockText says whose clock is off, how far, and what to do.
func clockText(a clock.Astray, name string) string {
	whose, side := "the clock of "+name, "ahead of"
	if a.Member == "" {
		whose = "this machine's clock"
	}
	if a.By < 0 {
		side = "behind"
	}
	if !a.Sure {
		return fmt.Sprintf("%s is %s %s this machine's, and no more than half of the members say which one is right: set the wrong one. A membership ends when both say so",
			whose, plan.Duration(a.By.Abs().Round(time.Minute)), side)
	}
	return fmt.Sprintf("%s is %s %s the others': set it right. The run goes by the others' until then", whose, plan.Duration(a.By.Abs().Round(time.Minute)), side)
}
