package leader

import (
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// substitute returns who goes on in the place of a member that is lost, so that nobody ends the generation, and whether from the
// newest checkpoint; empty where that is no way. Members that have given the generation up are past it, and a plan that ends anyway
// needs nobody, nor does a step that is better begun again. Of those that have the layers in memory the one with the fewest stages computes them twice.
func (v view) substitute(lost plan.PeerID) (by plan.PeerID, replays bool) {
	if v.Carried.Lost != "" || v.Paused || v.Saved || v.Ending || v.Ended != "" || v.Salvage != nil || v.Stall.For > 0 || len(v.Trial.Accusations) > 0 {
		return "", false
	}
	if v.absence() != "" {
		return "", false
	}
	if able := slices.DeleteFunc(v.Plan.Substitutes(lost), v.away); len(able) > 0 {
		by = slices.MinFunc(able, func(a, b plan.PeerID) int { return v.stagesOf(a) - v.stagesOf(b) })
		mine := slices.DeleteFunc(v.Plan.Workers(), func(w plan.WorkerID) bool { return w.Peer != lost })
		if v.UnderWay.gives(lost, by, len(mine)) {
			return "", false
		}
		return by, false
	}
	others := slices.DeleteFunc(slices.Clone(v.Plan.Peers()), func(p plan.PeerID) bool { return p == lost })
	if able := v.Replayers[lost]; len(able) > 0 && !slices.ContainsFunc(others, v.away) {
		return able[0], true
	}
	return "", false
}

// away reports whether a member cannot do more than it does.
func (v view) away(peer plan.PeerID) bool {
	return !slices.ContainsFunc(v.Members, func(m memberView) bool {
		return m.Peer == peer && m.Active && !m.Restarted && !m.Ended && m.Silent <= DeadAfter
	})
}

// mostCatchUp is for how long steps may wait until a substitute has computed those since the newest checkpoint again, or for fewCatchUp
// steps of the plan, where these take longer: half of what workers wait for each other at least.
const (
	mostCatchUp = 15 * time.Second
	fewCatchUp  = 5
)

// mostSlowdown bounds how many times as slow as another one a member is believed to be: a machine that was busy when it was measured
// seems slower than it is.
const mostSlowdown = 4

// storedBy reports whether some members have the state of all layers of stages at the checkpoint, as the log knows.
func storedBy(state consensus.State, stages []plan.StageID, members []plan.PeerID) bool {
	mine := func(p plan.PeerID) bool { return slices.Contains(members, p) }
	return !slices.ContainsFunc(state.Checkpoint.Layers, func(l consensus.LayerRef) bool {
		of := func(id plan.StageID) bool { return state.Plan.At(id).Layers.Contains(l.Layer) }
		return slices.ContainsFunc(stages, of) && !slices.ContainsFunc(l.Kept(state), mine)
	})
}

// replayers returns who could go on from the newest checkpoint in the place of members whose process has ended, best first. Nobody
// could where somebody has not kept what it sent since, where another one loads what the lost one alone had, or where that takes too long: newest is the
// step that the plan has come to.
func (w *salvageWatch) replayers(state consensus.State, members []memberView, newest plan.Step) map[plan.PeerID][]plan.PeerID {
	all := map[plan.PeerID][]plan.PeerID{}
	for _, m := range members {
		if !m.Ended || !state.Plan.Places(m.Peer) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(state.Plan.Peers()), func(p plan.PeerID) bool { return p == m.Peer })
		if !w.kept(state, others) {
			continue
		}
		steps, each := newest-min(newest, state.Checkpoint.Step), min(w.beats.StepTime(state.Plan), slowStep)
		long := func(p plan.PeerID) bool {
			return float64(steps)*float64(each)*slowdown(state, m.Peer, p) > float64(max(mostCatchUp, fewCatchUp*each))
		}
		var lost, fetched []plan.StageID
		for _, id := range state.Plan.Workers() {
			if id.Peer == m.Peer {
				lost = append(lost, state.Plan.StagesOf(id)...)
			} else if newest <= state.Plan.Start { // before the first step others may have to load, too
				fetched = append(fetched, state.Plan.StagesOf(id)...)
			}
		}
		var there []plan.PeerID // also who has no part in the plan
		for _, o := range members {
			if o.Peer != m.Peer && !o.Ended && o.Silent <= DeadAfter {
				there = append(there, o.Peer)
			}
		}
		if storedBy(state, lost, others) && storedBy(state, fetched, there) {
			all[m.Peer] = slices.DeleteFunc(w.order(state, state.Plan.Replayers(m.Peer), lost), long)
		}
	}
	return all
}

// slowdown returns how many times as long as a lost member another one takes for the same stages, as far as plans count on their
// devices; 1 at least, and mostSlowdown at most.
func slowdown(state consensus.State, lost, other plan.PeerID) float64 {
	speed := map[plan.PeerID]int64{}
	for _, c := range state.Counted() {
		for _, d := range c.Profile.Devices {
			speed[c.Peer] = max(speed[c.Peer], d.MatMulFLOPS)
		}
	}
	return min(max(1, float64(speed[lost])/float64(max(1, speed[other]))), mostSlowdown)
}

// stagesOf counts a peer's stages.
func (v view) stagesOf(peer plan.PeerID) (n int) {
	for _, w := range v.Plan.Workers() {
		if w.Peer == peer {
			n += len(v.Plan.StagesOf(w))
		}
	}
	return n
}

// carried names a lost member of the plan and who goes on in its place; zero while nobody does.
type carried struct{ Lost, By plan.PeerID }

// carriedOf returns who goes on in whose place, as the log says.
func carriedOf(state consensus.State) carried {
	if s := state.Substitute; s != nil {
		return carried{s.Lost, s.By}
	}
	return carried{}
}

// counted leaves out that a lost member makes no progress: its substitute may need longer to catch up than the others wait, which is
// nobody's fault. All else that is said names who did it.
func (c carried) counted(said []accusation) []accusation {
	return slices.DeleteFunc(slices.Clone(said), func(a accusation) bool {
		return c.Lost != "" && a.Accused == c.Lost && a.Kind == plan.NoProgress
	})
}
