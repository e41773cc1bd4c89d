package blame

import (
	"fmt"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// A member whose process was started again more than mostRestarts times within restartWindow is left out for a while:
// each time everything is planned anew. Machines that are taken away and come back do so less often.
const (
	mostRestarts  = 3
	restartWindow = 5 * time.Minute
)

// Restarts holds when members' processes were started again, as a leader saw it. The zero value has seen none.
type Restarts struct {
	epochs map[plan.PeerID]uint64 // of their newest processes
	at     map[plan.PeerID][]time.Time
}

// Look takes in the roster at a time.
func (r *Restarts) Look(members []consensus.Member, now time.Time) {
	if r.epochs == nil {
		r.epochs, r.at = map[plan.PeerID]uint64{}, map[plan.PeerID][]time.Time{}
	}
	for _, m := range members {
		before, known := r.epochs[m.Peer]
		if r.epochs[m.Peer] = m.ProcessEpoch; !known || before == m.ProcessEpoch {
			continue
		}
		at := append(r.at[m.Peer], now)
		r.at[m.Peer] = at[max(0, len(at)-mostRestarts-1):]
	}
}

// Often returns the ruling on the first member of the plan that was started again too often, if there is one. Owners'
// nodes are left alone.
func (r *Restarts) Often(s consensus.State, now time.Time) Ruling {
	t := Trial{Owners: s.Owners}
	for _, p := range s.Plan.Peers() {
		if at := r.at[p]; len(at) > mostRestarts && now.Sub(at[0]) <= restartWindow && !t.owns(p) {
			return Ruling{Out: true, Blame: consensus.Blame{
				Peer: p, Kind: plan.NoProgress, Step: s.Checkpoint.Step,
				Detail: fmt.Sprintf("its process was started again more than %d times in %s", mostRestarts, plan.Duration(restartWindow)),
			}}
		}
	}
	return Ruling{}
}

// Forget begins anew with a member that was ruled on.
func (r *Restarts) Forget(p plan.PeerID) { delete(r.at, p) }
