package leader

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// salvageGrace bounds the wait for what the living members of a broken generation have left.
	salvageGrace = 2 * time.Second
	// mostSalvages bounds the salvages that a leader asks for in one generation.
	mostSalvages = 4
)

// offer names what a member can give of a stage of the plan after the generation's end: the state in its own memory after
// Step, or after Pending where others have that step's commit. A Replay brings another member's stage to any step from
// From on; one member replays all that it replays from the same step.
type offer struct {
	By plan.PeerID
	plan.StageID
	Step, Pending plan.Step
	Replay        bool
	From          plan.Step
}

// reaches reports whether the state can be brought to a step.
func (o offer) reaches(step plan.Step) bool {
	if o.Replay {
		return o.From <= step
	}
	return o.Step == step || o.Pending == step
}

// salvageOf returns the newest step after the checkpoint's to which members can bring all layers of a plan, and who
// saves which: whoever has them, and else one member that replays the others.
func salvageOf(p plan.Plan, layers int, checkpoint plan.Step, offers []offer) (consensus.Salvage, bool) {
	var steps []plan.Step // that somebody has the commit of
	var own, replays []offer
	for _, o := range offers {
		switch _, ok := p.Find(o.StageID); {
		case !ok:
		case o.Replay:
			replays = append(replays, o)
		default:
			own = append(own, o)
			if o.Step > checkpoint {
				steps = append(steps, o.Step)
			}
		}
	}
	slices.SortFunc(replays, func(a, b offer) int { // the least to replay first
		return cmp.Or(cmp.Compare(b.From, a.From), cmp.Compare(a.By, b.By), a.compare(b))
	})
	groups := [][]offer{nil}
	for i, o := range replays {
		if last := len(groups) - 1; i == 0 || o.By != replays[i-1].By || o.From != replays[i-1].From {
			groups = append(groups, []offer{o})
		} else {
			groups[last] = append(groups[last], o)
		}
	}
	slices.Sort(steps)
	for _, step := range slices.Backward(slices.Compact(steps)) {
		for _, group := range groups {
			if parts, ok := partsOf(p, layers, step, own, group); ok {
				return consensus.Salvage{Generation: p.Generation, Step: step, Parts: parts}, true
			}
		}
	}
	return consensus.Salvage{}, false
}

// compare orders offers by stage.
func (o offer) compare(b offer) int {
	return cmp.Or(cmp.Compare(o.Replica, b.Replica), cmp.Compare(o.Stage, b.Stage))
}

// partsOf returns who saves which layers of a step, as far as possible those that nobody has to bring there, and from
// as many members as possible; replays fill what is left.
func partsOf(p plan.Plan, layers int, step plan.Step, own, replays []offer) (parts []consensus.SalvagePart, ok bool) {
	given := map[plan.PeerID]int{} // layers
	for next := 0; next < layers; next = parts[len(parts)-1].Layers.End {
		has := func(o offer) bool { return !o.reaches(step) || !p.At(o.StageID).Layers.Contains(next) }
		able := slices.DeleteFunc(slices.Clone(own), has)
		if len(able) == 0 {
			able = slices.DeleteFunc(slices.Clone(replays), has)
		}
		if len(able) == 0 {
			return nil, false
		}
		best := slices.MinFunc(able, func(a, b offer) int {
			return cmp.Or(cmp.Compare(a.lag(step), b.lag(step)), cmp.Compare(given[a.By], given[b.By]), a.compare(b))
		})
		end := p.At(best.StageID).Layers.End
		if best.Replay { // as far as nobody has the layers
			for l := next + 1; l < end; l++ {
				if slices.ContainsFunc(own, func(o offer) bool { return o.reaches(step) && p.At(o.StageID).Layers.Contains(l) }) {
					end = l
				}
			}
		}
		parts = append(parts, consensus.SalvagePart{
			Replica: best.Replica, Stage: best.Stage, Layers: plan.LayerRange{First: next, End: end}, By: best.By, From: best.From,
		})
		given[best.By] += end - next
	}
	return parts, true
}

// lag is 1 for a state that has to be brought to the step.
func (o offer) lag(step plan.Step) int {
	if o.Step == step {
		return 0
	}
	return 1
}

// salvage is the rule of what a broken generation has left: it has the newest step of the living saved before a plan
// starts from there. It is not ok where there is no more to be had: then the newest checkpoint is where plans start.
// A member that ends the generation late may have a newer step than the one that is saved by then.
func (v view) salvage() (verdict, bool) {
	if !v.broken() || v.Ending || v.Ended != "" || v.spoilt() || v.Stall.Lacks {
		return verdict{}, false
	}
	why, saved := v.absence(), v.Salvage != nil && v.Checkpoint >= v.Salvage.Step
	best, ok := salvageOf(v.Plan, v.Layers, v.Checkpoint, v.Offers)
	shorter := ok && v.Salvage != nil && v.replays(*v.Salvage) && !v.replays(best) && v.Salvages < mostSalvages // who was away is back
	if v.Salvage != nil && !saved && v.SalvagedFor <= v.SavePatience+v.ReplayPatience && v.undertaken(*v.Salvage) && !shorter {
		return verdict{Prepare: why != "", Why: why}, true
	}
	if !saved && v.BrokenFor <= salvageGrace && (!v.heardAll() || v.mayPart()) {
		return verdict{}, true
	}
	if !ok || v.Salvages >= mostSalvages || v.Salvage != nil && reflect.DeepEqual(best, *v.Salvage) {
		return verdict{}, false
	}
	return verdict{Salvage: &best}, true
}

// replays reports whether a part of a salvage is computed again.
func (v view) replays(s consensus.Salvage) bool {
	return slices.ContainsFunc(s.Parts, func(p consensus.SalvagePart) bool {
		return !v.Plan.Has(p.By, plan.StageID{Replica: p.Replica, Stage: p.Stage})
	})
}

// spoilt reports whether somebody says that what the generation computed is wrong.
func (v view) spoilt() bool {
	return slices.ContainsFunc(v.Trial.Accusations, func(a accusation) bool { return a.Kind != plan.LostLink && a.Kind != plan.NoProgress })
}

// undertaken reports whether each part of a salvage is saved, or offered by whoever is to save it.
func (v view) undertaken(s consensus.Salvage) bool {
	return !slices.ContainsFunc(s.Parts, func(p consensus.SalvagePart) bool {
		offered := slices.ContainsFunc(v.Offers, func(o offer) bool {
			return o.By == p.By && o.Replica == p.Replica && o.Stage == p.Stage && o.reaches(s.Step)
		})
		return !offered && !v.Stored[p.Layers.First]
	})
}

// heardAll reports whether all members of the plan that live, as far as anybody knows, have ended the generation. Who is accused
// lives if it was heard of lately: the link may be at fault.
func (v view) heardAll() bool {
	absent := v.absent()
	lately := func(p plan.PeerID) bool {
		return slices.ContainsFunc(v.Members, func(m memberView) bool { return m.Peer == p && m.Silent <= steadyGap })
	}
	return !slices.ContainsFunc(v.Plan.Peers(), func(p plan.PeerID) bool {
		_, away := absent[p]
		away = away || v.Apart[p]
		accused := !lately(p) && slices.ContainsFunc(v.Trial.Accusations, func(a accusation) bool { return a.Accused == p })
		offers := slices.ContainsFunc(v.Offers, func(o offer) bool { return o.By == p })
		return !away && !accused && !offers && !slices.Contains(v.Stall.By, p)
	})
}

// offers returns what the members of the plan that live say that they have left. It takes nobody's word on stages that
// the plan does not give it.
func (t *term) offers(state consensus.State) (all []offer) {
	for _, peer := range state.Plan.Peers() {
		m, ok := state.Member(peer)
		b, heard := t.Heartbeats.Last(peer)
		of := cmp.Or(b.Stalled, b.Generation) // who has done all of its steps has not given the generation up
		if !ok || !heard || m.State == consensus.Gone || state.Reborn(m) || of != state.Plan.Generation {
			continue
		}
		for _, r := range b.Retained {
			id := plan.StageID{Replica: r.Replica, Stage: r.Stage}
			if state.Plan.Has(peer, id) && r.Step <= state.Run.Train.Steps {
				all = append(all, offer{By: peer, StageID: id, Step: r.Step, Pending: r.Pending})
			}
		}
	}
	reached := slices.DeleteFunc(slices.Clone(all), func(o offer) bool { return partedBy(state, o.By) })
	if len(reached) < len(all) {
		reached = append(reached, t.replays(state, reached)...)
		if _, ok := salvageOf(state.Plan, state.Run.Model.Layers(), state.Checkpoint.Step, reached); ok {
			return reached // what a member saves is of no use where others cannot fetch it
		}
	}
	return append(all, t.replays(state, all)...)
}

// partedBy reports whether a member is left out since data does not get from it to another one, or to it, in this generation.
func partedBy(s consensus.State, p plan.PeerID) bool {
	return slices.ContainsFunc(s.Blames, func(b consensus.Blame) bool {
		return b.Generation == s.Plan.Generation && b.Peer == p && b.Kind == plan.LostLink && b.Until != 0
	})
}

// replays returns which member can bring the workers of those that do not live to newer steps: of those that have not failed to
// the one that has stored most of their state at the checkpoint, as the log knows, or is to hold most of the copies. All that
// sent messages to the lost must have them since the checkpoint.
func (t *term) replays(state consensus.State, own []offer) (all []offer) {
	if len(state.Plan.Sharded) > 0 {
		return nil // of what the living hold in parts nobody has all
	}
	living := map[plan.PeerID]bool{}
	for _, o := range own {
		living[o.By] = true
	}
	var able []plan.PeerID
	for peer := range living {
		if b, _ := t.Heartbeats.Last(peer); !b.NoReplay {
			able = append(able, peer)
		}
	}
	stored, holds := map[plan.PeerID]int64{}, map[plan.PeerID]int{} // bytes of the stages that are lost, and how many of them
	var lost []plan.StageID
	var gone []plan.PeerID
	for r, pipe := range state.Plan.Replicas {
		for s, place := range pipe.Stages {
			if !living[place.Peer] {
				id := plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)}
				lost = append(lost, id)
				gone = append(gone, place.Peer)
				holds[state.Holder(id)]++
				for _, l := range state.Checkpoint.Layers {
					for _, h := range l.Holders {
						if place.Layers.Contains(l.Layer) {
							stored[h] += l.SizeBytes
						}
					}
				}
			}
		}
	}
	for _, peer := range state.Plan.Senders(gone, state.Run.Model.Tied()) {
		if b, _ := t.Heartbeats.Last(peer); b.Kept == 0 || b.Kept > state.Checkpoint.Step+1 {
			return nil
		}
	}
	if len(able) == 0 {
		return nil
	}
	best := slices.MinFunc(able, func(a, b plan.PeerID) int {
		return cmp.Or(cmp.Compare(stored[b], stored[a]), cmp.Compare(holds[b], holds[a]), cmp.Compare(a, b))
	})
	for _, id := range lost {
		all = append(all, offer{By: best, StageID: id, Replay: true, From: state.Checkpoint.Step})
	}
	return all
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

// viewSalvage gathers what is left of a broken generation.
func (t *term) viewSalvage(state consensus.State, v *view, now time.Time) {
	if !v.broken() {
		t.broken, t.salvages = seenSalvage{}, 0
		return
	}
	v.Layers, v.Offers, v.Salvage, v.Salvages = state.Run.Model.Layers(), t.offers(state), state.Salvage, t.salvages
	v.Apart = map[plan.PeerID]bool{}
	for _, p := range state.Plan.Peers() {
		v.Apart[p] = partedBy(state, p)
	}
	v.BrokenFor = t.broken.since(state.Plan.Generation, nil, now)
	if v.Salvage == nil {
		return
	}
	for _, p := range v.Salvage.Parts {
		if id := (plan.StageID{Replica: p.Replica, Stage: p.Stage}); !state.Plan.Has(p.By, id) {
			steps := time.Duration(v.Salvage.Step - p.From)
			v.ReplayPatience = steps * min(t.Heartbeats.StepTime(state.Plan), slowStep)
		}
	}
	v.SalvagedFor, v.Stored = t.salvaged.since(state.Plan.Generation, v.Salvage, now), map[int]bool{}
	for _, c := range state.Pending {
		for _, l := range c.Layers {
			v.Stored[l.Layer] = v.Stored[l.Layer] || c.Step == v.Salvage.Step
		}
	}
}
