package leader

import (
	"fmt"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// A member may send heartbeats of another generation than the plan that it has a part in for deafAfter, and for two
// of its steps more: one has to end before it follows. It is not believed that these take longer than deafAtMost.
const (
	deafAfter  = 30 * time.Second
	deafAtMost = 5 * time.Minute
)

// seenPlan is when a leader first saw a generation's plan.
type seenPlan struct {
	generation plan.Generation
	at         time.Time
}

// deafWatch finds members that live and do not carry their plan out.
type deafWatch struct {
	beats *gossip.Tracker
	// begun is when this leader first saw the current plan.
	begun seenPlan
	// ahead is since when members speak of a later one: an honest member may have seen it before this look does.
	ahead map[plan.PeerID]time.Time
}

// look accuses the members of the plan that live, and whose heartbeats say that they have not begun with it: the
// others may wait long for state that a slow line brings, but not for who does not try. Who was started again since the plan was made
// has no part in it. The accuser is nobody, which is this leader.
func (d *deafWatch) look(state consensus.State, now time.Time) (said []accusation) {
	g := state.Plan.Generation
	if d.begun.generation != g {
		d.begun, d.ahead = seenPlan{g, now}, map[plan.PeerID]time.Time{}
	}
	if g == 0 {
		return nil
	}
	for _, p := range state.Plan.Peers() {
		if m, ok := state.Member(p); !ok || m.State == consensus.Gone || state.Reborn(m) {
			continue
		}
		b, heard := d.beats.Last(p)
		ago, _ := d.beats.Ago(p, now)
		since := d.begun.at
		if b.Generation <= g {
			delete(d.ahead, p)
		} else if since, heard = d.ahead[p]; !heard {
			d.ahead[p] = now
		}
		patience := deafAfter + time.Duration(min(max(0, b.StepNanos), deafAtMost.Nanoseconds()/2))*2
		if state.Substitute.Carrier(p) == p && heard && ago < 3*gossip.Every+d.beats.Slack(p) && b.Generation != g && now.Sub(since) >= patience {
			said = append(said, accusation{Fault: plan.Fault{
				Accused: p, Kind: plan.NoProgress, Step: state.Plan.Start,
				Detail: fmt.Sprintf("it has not begun with generation %d in %s", g, plan.Duration(patience)),
			}})
		}
	}
	return said
}
