package leader

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"pnode/node/gossip"
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

// partsOf returns who saves which layers of a step, as far as possible those that nobody has to bring there. Members that have the same layers
// share them, since all wait until the last one is saved; replays fill what is left.
func partsOf(p plan.Plan, layers int, step plan.Step, own, replays []offer) (parts []consensus.SalvagePart, ok bool) {
	given := map[plan.PeerID]int{} // layers
	give := func(o offer, layers plan.LayerRange) {
		part := consensus.SalvagePart{Replica: o.Replica, Stage: o.Stage, Layers: layers, By: o.By, From: o.From}
		given[o.By] += layers.Len()
		if last := len(parts) - 1; last >= 0 && parts[last].Replica == o.Replica && parts[last].Stage == o.Stage && parts[last].By == o.By {
			part.Layers.First = parts[last].Layers.First
			parts = parts[:last]
		}
		parts = append(parts, part)
	}
	for next := 0; next < layers; next = parts[len(parts)-1].Layers.End {
		has := func(o offer) bool { return !o.reaches(step) || !p.At(o.StageID).Layers.Contains(next) }
		able := slices.DeleteFunc(slices.Clone(own), has)
		if len(able) == 0 {
			able = slices.DeleteFunc(slices.Clone(replays), has)
		}
		if len(able) == 0 {
			return nil, false
		}
		slices.SortFunc(able, func(a, b offer) int {
			return cmp.Or(cmp.Compare(a.lag(step), b.lag(step)), cmp.Compare(given[a.By], given[b.By]), a.compare(b))
		})
		best := able[0]
		end := p.At(best.StageID).Layers.End
		if best.Replay { // as far as nobody has the layers
			for l := next + 1; l < end; l++ {
				if slices.ContainsFunc(own, func(o offer) bool { return o.reaches(step) && p.At(o.StageID).Layers.Contains(l) }) {
					end = l
				}
			}
			give(best, plan.LayerRange{First: next, End: end})
			continue
		}
		var alike []offer // of members that have these layers as early as the best
		for _, o := range able {
			if o.lag(step) == best.lag(step) && !slices.ContainsFunc(alike, func(have offer) bool { return have.By == o.By }) {
				alike = append(alike, o)
				end = min(end, p.At(o.StageID).Layers.End)
			}
		}
		for _, o := range own { // where one more can share
			if first := p.At(o.StageID).Layers.First; o.reaches(step) && o.lag(step) == best.lag(step) && next < first {
				end = min(end, first)
			}
		}
		for i, o := range alike {
			if left := len(alike) - i; next < end {
				give(o, plan.LayerRange{First: next, End: next + (end-next+left-1)/left})
				next = parts[len(parts)-1].Layers.End
			}
		}
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

// salvaged has the newest step that the living have in memory saved.
func (v view) salvaged() (verdict, bool) {
	next, _ := v.salvage()
	return next, next.Salvage != nil
}

// salvaging waits for what is being saved, or may yet be. The next plan is looked for meanwhile, once it is known who is away.
func (v view) salvaging() (verdict, bool) {
	next, waits := v.salvage()
	if missed, misses := v.missed(); waits && misses && !next.Prepare {
		return verdict{Prepare: missed.Prepare || missed.Plan, Why: missed.Why, Blocked: missed.Blocked}, true
	}
	return next, waits
}

// salvage is the rule of what a broken generation has left: it has the newest step of the living saved before a plan
// starts from there. It is not ok where there is no more to be had: then the newest checkpoint is where plans start.
// A member that ends the generation late may have a newer step than the one that is saved by then. Replicas with local steps have no step in common but
// outer ones, which are saved by themselves.
func (v view) salvage() (verdict, bool) {
	if v.Plan.Local != nil || !v.broken() || v.Finished || v.Ended != "" || v.spoilt() || v.Stall.Lacks {
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

// undertaken reports whether each part of a salvage is saved, or offered by whoever is to save it.
func (v view) undertaken(s consensus.Salvage) bool {
	return !slices.ContainsFunc(s.Parts, func(p consensus.SalvagePart) bool {
		offered := slices.ContainsFunc(v.Offers, func(o offer) bool {
			return o.By == p.By && o.Replica == p.Replica && o.Stage == p.Stage && o.reaches(s.Step)
		})
		return !offered && !v.Stored[p.Layers.First]
	})
}

// Unsaved returns the parts of what the log has members save of a broken generation that are not stored yet, and are to be: none of those
// asked has said that it cannot. None are left to wait for where it is given up.
func Unsaved(beats *gossip.Tracker, state consensus.State) []consensus.SalvagePart {
	if state.Salvage == nil || state.Checkpoint.Step >= state.Salvage.Step {
		return nil
	}
	parts := unsaved(*state.Salvage, reported(state))
	if slices.ContainsFunc(parts, func(p consensus.SalvagePart) bool { return failed(beats, state, p) }) {
		return nil
	}
	return parts
}

// failed reports whether a member says that it cannot save what it is asked to.
func failed(beats *gossip.Tracker, state consensus.State, p consensus.SalvagePart) bool {
	b, _ := beats.Last(p.By)
	if !state.Plan.Has(p.By, plan.StageID{Replica: p.Replica, Stage: p.Stage}) {
		return b.NoReplay
	}
	return b.Stalled == state.Plan.Generation && !slices.ContainsFunc(b.Retained, func(r gossip.RetainedStage) bool {
		return r.Replica == p.Replica && r.Stage == p.Stage
	})
}

// MaySave reports whether the members of a plan that was given up may have a newer step than the checkpoint's in memory, as far as another one
// knows: together they have all of it, or one that lives has not said what it has. What the log has asked them to save does not count where
// they are late.
func MaySave(beats *gossip.Tracker, state consensus.State, late bool, now time.Time) bool {
	if state.Plan.Generation == 0 || state.Finished {
		return false
	}
	w := salvageWatch{beats: beats}
	if s := state.Salvage; s != nil && state.Checkpoint.Step < s.Step && late {
		w.late = lateBy(nil, *s, reported(state))
	}
	offers := w.offers(state)
	if _, ok := salvageOf(state.Plan, state.Run.Model.Layers(), state.Checkpoint.Step, offers); ok {
		return true
	}
	return slices.ContainsFunc(state.Plan.Peers(), func(p plan.PeerID) bool {
		m, known := state.Member(p)
		b, _ := beats.Last(p)
		ago, heard := beats.Ago(p, now)
		away := !known || m.State == consensus.Gone || state.Reborn(m) || !heard || ago > DeadAfter
		said := b.Stalled == state.Plan.Generation || cmp.Or(b.Stalled, b.Generation) == state.Plan.Generation && len(b.Retained) > 0
		return !away && !said
	})
}
