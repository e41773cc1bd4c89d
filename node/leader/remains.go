package leader

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// remains describe what is left of a broken generation; zero while it goes on, but for the restoration of its checkpoint.
type remains struct {
	// Layers counts those of the model. Offers are what the members have left of the plan once it is broken, which this
	// leader has known for BrokenFor.
	Layers    int
	Offers    []offer
	BrokenFor time.Duration
	// Salvage is the newest that the log has of the generation, known here for SalvagedFor; nil without one. Stored has the
	// layers of its step that are reported. Salvages counts those that this leader has proposed.
	Salvage     *consensus.Salvage
	SalvagedFor time.Duration
	Stored      map[int]bool
	Salvages    int
	// ReplayPatience is how long the steps took that the salvage has computed again, mostRedo at most.
	ReplayPatience time.Duration
	// Apart are the members that are left out since data does not get through between them and another one.
	Apart map[plan.PeerID]bool
	// Unheld says which layer of the newest checkpoint no member holds any more, and who did; nil for none.
	Unheld *consensus.LayerRef
	// Restorer computes layers again that nobody holds any more, for the newest checkpoint to have all of its layers, broken or not; empty for
	// nobody. It begins with the checkpoint of step RestoredFrom. This leader has known for RestoringFor that these layers are lost.
	Restorer     plan.PeerID
	RestoredFrom plan.Step
	RestoringFor time.Duration
	// Absent are waited for where the whole run is started again.
	Absent absentHolders
	// RedoTime is about how long it takes to do the steps since the checkpoint again that the run would go back to, mostRedo at most.
	RedoTime time.Duration
}

// restoring reports whether a member that computes lost layers of the newest checkpoint again is waited for: no longer than it takes to do all
// of these steps again, or a minute.
func (r remains) restoring() bool {
	return r.Restorer != "" && r.RestoringFor <= max(mostReturn, r.RedoTime)
}

// salvageWatch follows what is left of a broken generation. The zero value of all but beats has seen none.
type salvageWatch struct {
	beats *gossip.Tracker
	// broken is when this leader first saw the current generation broken, salvaged when it saw the newest salvage of it;
	// asked counts those that it proposed.
	broken, salvaged seenSalvage
	asked            int
	// late are the workers of the generation that members offered the state of, or to replay, and did not save in time.
	late map[promise]bool
	// lost is when this leader first saw that layers of the checkpoint of a step are, which are computed again.
	lost struct {
		step plan.Step
		at   time.Time
	}
	// starting is since when holders of layers are waited for; zero while none are.
	starting time.Time
}

// promise names a worker of whose state a member is to save a part.
type promise struct {
	by plan.PeerID
	plan.StageID
}

// seenSalvage is when a leader first saw a generation broken, or a salvage of it.
type seenSalvage struct {
	generation plan.Generation
	salvage    *consensus.Salvage
	at         time.Time
}

// since returns for how long this has been seen.
func (s *seenSalvage) since(g plan.Generation, of *consensus.Salvage, now time.Time) time.Duration {
	if s.generation != g || s.salvage != of {
		*s = seenSalvage{g, of, now}
	}
	return now.Sub(s.at)
}

// look returns what is left of the plan, if it is broken, whose newest step is known.
func (w *salvageWatch) look(m moment, newest plan.Step, broken bool) remains {
	state, now := m.state, m.now
	r := w.restoration(state, newest, now)
	if !broken {
		w.broken, w.asked, w.late = seenSalvage{}, 0, nil
		return r
	}
	g := state.Plan.Generation
	if w.broken.generation != g {
		w.late = nil
	}
	r.Salvage, r.ReplayPatience = state.Salvage, replayPatience(w.beats, state)
	if r.Salvage != nil {
		r.SalvagedFor, r.Stored = w.salvaged.since(g, r.Salvage, now), reported(state)
		if state.Checkpoint.Step < r.Salvage.Step && r.SalvagedFor > SalvagePatience(w.beats, state, m.patience) {
			w.late = lateBy(w.late, *r.Salvage, r.Stored)
		}
	}
	r.Layers, r.Offers, r.BrokenFor = state.Run.Model.Layers(), w.offers(state), w.broken.since(g, nil, now)
	r.Salvages, r.Apart = w.asked, map[plan.PeerID]bool{}
	r.Unheld = w.unheld(state, r.Offers)
	for _, p := range state.Plan.Peers() {
		r.Apart[p] = partedBy(state, p)
	}
	return r
}

// SalvagePatience returns for how long members are waited for that the log asks to save what is left of a generation, where the outcome of a
// proposal may take so long.
func SalvagePatience(beats *gossip.Tracker, state consensus.State, proposal time.Duration) time.Duration {
	return savePatience(beats.StepTime(state.Plan), proposal) + replayPatience(beats, state)
}

// replayPatience returns how long the steps took that the salvage has computed again, mostRedo at most; 0 where it has none.
func replayPatience(beats *gossip.Tracker, state consensus.State) (patience time.Duration) {
	if state.Salvage == nil {
		return 0
	}
	for _, p := range state.Salvage.Parts {
		if id := (plan.StageID{Replica: p.Replica, Stage: p.Stage}); !state.Plan.Has(p.By, id) {
			takes := float64(state.Salvage.Step-p.From) * float64(min(beats.StepTime(state.Plan), slowStep))
			patience = time.Duration(min(takes, float64(mostRedo))) // the step is one member's word
		}
	}
	return patience
}

// reported returns the layers that are stored of the step that is saved from memory.
func reported(state consensus.State) map[int]bool {
	layers := map[int]bool{}
	for _, c := range state.Pending {
		for _, l := range c.Layers {
			layers[l.Layer] = layers[l.Layer] || c.Step == state.Salvage.Step
		}
	}
	return layers
}

// unsaved returns the parts of a salvage that are not all stored.
func unsaved(s consensus.Salvage, stored map[int]bool) []consensus.SalvagePart {
	return slices.DeleteFunc(slices.Clone(s.Parts), func(p consensus.SalvagePart) bool {
		for l := p.Layers.First; l < p.Layers.End; l++ {
			if !stored[l] {
				return false
			}
		}
		return true
	})
}

// lateBy returns who is late once the time for another salvage is over.
func lateBy(late map[promise]bool, s consensus.Salvage, stored map[int]bool) map[promise]bool {
	all := map[promise]bool{}
	maps.Copy(all, late)
	for _, p := range unsaved(s, stored) {
		all[promise{p.By, plan.StageID{Replica: p.Replica, Stage: p.Stage}}] = true
	}
	return all
}

// restoration returns what is known of the restoration that goes on, and what going back would cost.
func (w *salvageWatch) restoration(state consensus.State, newest plan.Step, now time.Time) (known remains) {
	newest = min(newest, state.Run.Train.Steps) // it is one member's word
	if back := fallback(state); back > 0 && newest > back {
		takes := float64(newest-back) * float64(w.beats.StepTime(state.Plan))
		known.RedoTime = time.Duration(min(takes, float64(mostRedo)))
	}
	r := consensus.Restore(state)
	if w.lost.step != r.Of.Step {
		w.lost.step, w.lost.at = r.Of.Step, now
	}
	if able := w.beats.Restorers(r.By, r.Of.Step); len(able) > 0 {
		known.Restorer, known.RestoredFrom, known.RestoringFor = able[0], r.From.Step, now.Sub(w.lost.at)
	}
	return known
}

// fallback returns the step of the newest older checkpoint with a holder of each layer; 0 without one: who comes back with what the newest
// lacks loses nothing then.
func fallback(state consensus.State) plan.Step {
	for _, c := range state.Older {
		if len(c.Lost(state)) == 0 {
			return c.Step
		}
	}
	return 0
}

// offers returns what the members of the plan that live say that they have left. It takes nobody's word on stages that
// the plan does not give it.
func (w *salvageWatch) offers(state consensus.State) (all []offer) {
	for _, peer := range state.Plan.Peers() {
		m, ok := state.Member(peer)
		b, heard := w.beats.Last(peer)
		of := cmp.Or(b.Stalled, b.Generation) // who has done all of its steps has not given the generation up
		if !ok || !heard || m.State == consensus.Gone || state.Reborn(m) || of != state.Plan.Generation {
			continue
		}
		for _, r := range b.Retained {
			id := plan.StageID{Replica: r.Replica, Stage: r.Stage}
			if state.Plan.Has(peer, id) && r.Step <= state.Run.Train.Steps && !w.late[promise{peer, id}] {
				all = append(all, offer{By: peer, StageID: id, Step: r.Step, Pending: r.Pending})
			}
		}
	}
	reached := slices.DeleteFunc(slices.Clone(all), func(o offer) bool { return partedBy(state, o.By) })
	if len(reached) < len(all) {
		reached = append(reached, w.replays(state, reached)...)
		if _, ok := salvageOf(state.Plan, state.Run.Model.Layers(), state.Checkpoint.Step, reached); ok {
			return reached // what a member saves is of no use where others cannot fetch it
		}
	}
	return append(all, w.replays(state, all)...)
}

// partedBy reports whether a member is left out since data does not get from it to another one, or to it, in this generation.
func partedBy(s consensus.State, p plan.PeerID) bool {
	return slices.ContainsFunc(s.Blames, func(b consensus.Blame) bool {
		return b.Generation == s.Plan.Generation && b.Peer == p && b.Kind == plan.LostLink && b.Until != 0
	})
}

// replays returns which member can bring the workers of those that do not live, or do not save them in time, to newer steps: of those
// that have not failed to the one that has stored most of their state at the checkpoint, as the log knows, or is to hold most of the
// copies. All that sent messages to the lost must have them since the checkpoint.
func (w *salvageWatch) replays(state consensus.State, own []offer) (all []offer) {
	if len(state.Plan.Sharded) > 0 {
		return nil // of what the living hold in parts nobody has all
	}
	living := map[plan.PeerID]bool{}
	for _, o := range own {
		living[o.By] = true
	}
	var lost []plan.StageID
	var gone []plan.PeerID
	for r, pipe := range state.Plan.Replicas {
		for s, place := range pipe.Stages {
			if id := (plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}); !living[place.Peer] || w.late[promise{place.Peer, id}] {
				lost = append(lost, id)
				gone = append(gone, place.Peer)
			}
		}
	}
	if slices.ContainsFunc(lost, func(id plan.StageID) bool { return !held(state, state.Plan.At(id).Layers) }) {
		return nil
	}
	able := slices.DeleteFunc(w.order(state, slices.Collect(maps.Keys(living)), lost), func(p plan.PeerID) bool {
		return slices.ContainsFunc(lost, func(id plan.StageID) bool { return w.late[promise{p, id}] })
	})
	if len(able) == 0 || !w.kept(state, state.Plan.Senders(gone, state.Run.Model.Tied())) {
		return nil
	}
	for _, id := range lost {
		all = append(all, offer{By: able[0], StageID: id, Replay: true, From: state.Checkpoint.Step})
	}
	return all
}

// kept reports whether members have all messages that they sent since the newest checkpoint.
func (w *salvageWatch) kept(state consensus.State, peers []plan.PeerID) bool {
	return !slices.ContainsFunc(peers, func(p plan.PeerID) bool {
		b, _ := w.beats.Last(p)
		return b.Kept == 0 || b.Kept > state.Checkpoint.Step+1
	})
}

// unheld returns a layer of the newest checkpoint whose holders are all gone, and which nobody offers from memory; nil where there
// is none. Who is up and says that its own copy is damaged or missing counts for none of its holders, as long as there is another one to wait for.
func (w *salvageWatch) unheld(state consensus.State, offers []offer) *consensus.LayerRef {
	for _, l := range state.Checkpoint.Layers {
		has := func(o offer) bool {
			return !o.Replay && o.reaches(state.Checkpoint.Step) && state.Plan.At(o.StageID).Layers.Contains(l.Layer)
		}
		lacks := func(p plan.PeerID) bool { return w.lacks(state, l.Layer, p) }
		holders := slices.DeleteFunc(slices.Clone(l.Holders), lacks)
		if len(holders) == 0 && len(l.Holders) > 0 {
			continue
		}
		if l.Holders = holders; len(l.Holding(state)) == 0 && !slices.ContainsFunc(offers, has) {
			return &l
		}
	}
	return nil
}

// lacks reports whether a member of the plan gave it up since it has no whole copy of a layer of the newest checkpoint.
func (w *salvageWatch) lacks(state consensus.State, layer int, p plan.PeerID) bool {
	b, heard := w.beats.Last(p)
	m, ok := state.Member(p)
	return heard && ok && !state.Reborn(m) && b.LacksLayer != nil && *b.LacksLayer == layer && b.Stalled == state.Plan.Generation && state.Plan.Start == state.Checkpoint.Step
}

// held reports whether each of some layers of the newest checkpoint has a holder that is not gone.
func held(state consensus.State, layers plan.LayerRange) bool {
	return !slices.ContainsFunc(state.Checkpoint.Layers, func(l consensus.LayerRef) bool {
		return layers.Contains(l.Layer) && len(l.Holding(state)) == 0
	})
}

// order returns the members that have not failed to replay lost stages: first who has stored most of their state at the checkpoint, as
// the log knows, or is to hold most of the copies.
func (w *salvageWatch) order(state consensus.State, peers []plan.PeerID, lost []plan.StageID) []plan.PeerID {
	stored, holds := map[plan.PeerID]int64{}, map[plan.PeerID]int{} // bytes of the stages that are lost, and how many of them
	for _, id := range lost {
		holds[state.Holder(id)]++
		for _, l := range state.Checkpoint.Layers {
			for _, h := range l.Kept(state) {
				if state.Plan.At(id).Layers.Contains(l.Layer) {
					stored[h] += l.SizeBytes
				}
			}
		}
	}
	able := slices.DeleteFunc(slices.Clone(peers), func(p plan.PeerID) bool {
		b, _ := w.beats.Last(p)
		return b.NoReplay
	})
	slices.SortFunc(able, func(a, b plan.PeerID) int {
		return cmp.Or(cmp.Compare(stored[b], stored[a]), cmp.Compare(holds[b], holds[a]), cmp.Compare(a, b))
	})
	return able
}
