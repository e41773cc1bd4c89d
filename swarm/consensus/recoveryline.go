package consensus

import (
	"cmp"
	"slices"

	"pnode/planner/plan"
)

// JumpReach is how many steps before the newest checkpoint a good one is kept: what spoils the weights shows in the
// losses a few steps later, when newer checkpoints may have been made of them.
const JumpReach plan.Step = 32

// jumpReach returns JumpReach, and with local steps a round more: its losses are known at its end, when there may be a checkpoint of that.
func jumpReach(p plan.Plan) plan.Step {
	if p.Local == nil {
		return JumpReach
	}
	return JumpReach + p.Local.Every
}

// retain returns the older checkpoints, newest first, that stay besides the newest one: keep-1 of them, and where
// none of these is reach steps older, the newest that is, and one that will be when that one is too old. After the newest of the keep-1
// come those that restorations go by, more of them if need be: of the first line ones the last, and with which plans since then began. Where
// that last one is not secured they are additional.
func retain(older []Checkpoint, newest Checkpoint, reach plan.Step, keep, line int, secured bool) []Checkpoint {
	const most = MaxOlder - 2
	stays, count := make([]bool, len(older)), 0
	mark := func(limit int, wanted func(i int) bool) {
		for i := range older {
			if !stays[i] && count < limit && wanted(i) {
				stays[i] = true
				count++
			}
		}
	}
	recent := func() { mark(min(most, keep-1), func(int) bool { return true }) }
	if !secured {
		recent() // the last is worth no more than the others
	}
	mark(most, func(i int) bool {
		next := newest
		if i > 0 {
			next = older[i-1]
		}
		return i == 0 && (keep > 1 || !secured) || i == line-1 || i < line && older[i].Generation != next.Generation
	})
	recent()
	reaches := func(i int) bool { return older[i].Step+reach <= newest.Step }
	var rest []int
	reached := false
	for i := range older {
		if !stays[i] {
			rest = append(rest, i)
		}
		reached = reached || stays[i] && reaches(i)
	}
	if !reached {
		far := slices.IndexFunc(rest, reaches)
		if far < 0 {
			far = len(rest)
		}
		for _, i := range rest[max(0, far-1):min(len(rest), far+1)] {
			stays[i] = true
		}
	}
	var stay []Checkpoint
	for i, c := range older {
		if stays[i] {
			stay = append(stay, c)
		}
	}
	return stay
}

// Checkpoints returns those that the log keeps, newest first.
func Checkpoints(s State) []Checkpoint { return append([]Checkpoint{s.Checkpoint}, s.Older...) }

// RecoveryLine returns the checkpoints from which layers can be computed again that a death takes along, newest first: from the newest one
// back to the newest of which each layer is held twice, or to the oldest that is kept. What others sent since its last one
// has to stay: where that is held twice, no death of one member takes the run behind it. See Randell, System Structure for Software Fault Tolerance, 1975, and Elnozahy et al., A Survey
// of Rollback-Recovery Protocols, 2002.
func RecoveryLine(s State) (line []Checkpoint) {
	for _, c := range Checkpoints(s) {
		line = append(line, c)
		if c.Secured(s) {
			break
		}
	}
	return line
}

// Secured reports whether each layer of a checkpoint is stored by two members that are there and do not leave, or by one where the plan has
// no other that could. Before, a death may take the only copy of a layer along.
func (c Checkpoint) Secured(s State) bool {
	once := slices.DeleteFunc(slices.Clone(c.Layers), func(l LayerRef) bool {
		held := 0
		for _, p := range l.Holders {
			if stays(s, p) && l.StoredBy(p) {
				held++
			}
		}
		return held > 1
	})
	if len(once) == 0 {
		return true
	}
	stay := 0
	for _, m := range s.Members {
		if m.stays() {
			stay++
		}
	}
	for r, pipe := range s.Plan.Replicas {
		for st, place := range pipe.Stages {
			of := func(l LayerRef) bool { return place.Layers.Contains(l.Layer) }
			if !slices.ContainsFunc(once, of) {
				continue
			}
			holder := s.Holder(plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)})
			lacks := func(l LayerRef) bool {
				return of(l) && (!l.StoredBy(place.Peer) || holder != "" && !l.StoredBy(holder))
			}
			if stay > 1 && !stays(s, place.Peer) || slices.ContainsFunc(once, lacks) {
				return false
			}
		}
	}
	return true
}

// Lost returns the layers of a checkpoint that no member holds any more.
func (c Checkpoint) Lost(s State) (layers []int) {
	for _, l := range c.Layers {
		if len(l.Holding(s)) == 0 {
			layers = append(layers, l.Layer)
		}
	}
	return layers
}

// OwnStates returns the own states of replicas that a plan from a checkpoint can begin with, as members that are not gone hold all of them: the checkpoint's,
// and those of older ones as copies. None are wanted where the checkpoint has none.
func OwnStates(s State, from Checkpoint) (all []plan.Own) {
	for _, c := range Checkpoints(s) {
		for _, o := range c.Own {
			lost := slices.ContainsFunc(o.Layers, func(l LayerRef) bool { return len(l.Holding(s)) == 0 })
			if len(from.Own) > 0 && c.Step <= from.Step && !lost && c.hasOwn(*s.Run, o.Replica) {
				all = append(all, plan.Own{Replica: o.Replica, Step: c.Step, Copied: c.Step < from.Step})
			}
		}
	}
	return all
}

// NewestWhole returns the newest checkpoint of which members that are not gone hold each layer, and a replica's own state where it takes one; not ok where the log keeps none.
func NewestWhole(s State) (_ Checkpoint, ok bool) {
	for _, c := range Checkpoints(s) {
		if len(c.Lost(s)) == 0 && (len(c.Own) == 0 || len(OwnStates(s, c)) > 0) {
			return c, true
		}
	}
	return Checkpoint{}, false
}

// Restoration says which layers of a checkpoint are computed again that no member holds any more.
type Restoration struct {
	// Of is whose Layers these are; From is the checkpoint that their computation begins with.
	Of, From Checkpoint
	Layers   []int
	// By may do it, the likeliest first: those that made the checkpoint, and of these who holds most of the layers of From.
	By []plan.PeerID
}

// Restore returns what is computed again for the newest checkpoint to have all of its layers; zero where nothing is lost, or too much. Layers
// are computed again by the plan that made their checkpoint, from the newest one before with all layers of its members that are gone, whose
// workers run again. Where that plan began without them, the checkpoint that it began with is restored first. It follows from the log, so that
// all nodes name the same. Nobody makes local steps again.
func Restore(s State) Restoration {
	r := Restoration{Of: s.Checkpoint, Layers: s.Checkpoint.Lost(s)}
	if len(r.Layers) == 0 || s.Finished {
		return Restoration{}
	}
	for _, older := range s.Older {
		if len(r.Of.Own) > 0 || len(older.Own) > 0 {
			break
		}
		lost := older.Lost(s)
		wanted := func(l int) bool { return older.Generation == r.Of.Generation || r.Of.orphaned(s, l) } // who made it by the same plan is gone
		if !slices.ContainsFunc(lost, wanted) {
			r.From = older
			r.By = r.able(s)
			return r
		}
		if older.Generation != r.Of.Generation {
			r.Of, r.Layers = older, lost
		}
	}
	return Restoration{}
}

// orphaned reports whether the member is gone that made a layer of a checkpoint. Others may have loaded what they need to make it.
func (c Checkpoint) orphaned(s State, layer int) bool {
	return slices.ContainsFunc(c.Layers, func(l LayerRef) bool {
		return l.Layer == layer && !slices.Contains(l.Holding(s), l.maker())
	})
}

// able returns the members that may have what the restoration needs, in their order.
func (r Restoration) able(s State) (able []plan.PeerID) {
	makes, stored := map[plan.PeerID]int{}, map[plan.PeerID]int64{}
	for _, l := range r.Of.Layers {
		makes[l.maker()] = 1 // those that load it later follow
	}
	for _, l := range r.From.Layers {
		if slices.Contains(r.Layers, l.Layer) {
			for _, p := range l.Holding(s) {
				stored[p] += l.SizeBytes
			}
		}
	}
	for _, m := range s.Members {
		if m.State == Active && !s.Reborn(m) {
			able = append(able, m.Peer)
		}
	}
	slices.SortStableFunc(able, func(a, b plan.PeerID) int {
		return cmp.Or(makes[b]-makes[a], cmp.Compare(stored[b], stored[a]))
	})
	return able
}

// restores reports whether a peer may compute a layer of a checkpoint again.
func (e StageSaved) restores(s State, layer int, peer plan.PeerID) bool {
	r := Restore(s)
	return e.of(r.Of) && slices.Contains(r.By, peer) && slices.Contains(r.Layers, layer)
}

// stores reports whether a peer stores a layer of a checkpoint that it is known to have, such as in memory.
func (e StageSaved) stores(s State, layer int, peer plan.PeerID) bool {
	has := func(l LayerRef) bool {
		return l.Layer == layer && slices.Contains(l.Holders[:len(l.Holders)-l.Whole], peer)
	}
	return e.Unstored == 0 && slices.ContainsFunc(Checkpoints(s), func(c Checkpoint) bool {
		if e.Own != nil {
			return e.of(c) && slices.ContainsFunc(c.Own, func(o OwnState) bool { return o.Replica == *e.Own && slices.ContainsFunc(o.Layers, has) })
		}
		return e.of(c) && slices.ContainsFunc(c.Layers, has)
	})
}

// maker returns who was the first to have a layer: who computed it.
func (l LayerRef) maker() plan.PeerID {
	if len(l.Holders) == 0 {
		return ""
	}
	return l.Holders[0]
}

// Holding returns the holders of a layer that are not gone, nor the process in whose memory alone they had it.
func (l LayerRef) Holding(s State) []plan.PeerID {
	return slices.DeleteFunc(slices.Clone(l.Holders), func(p plan.PeerID) bool { return !here(s, p) || !l.has(s, p) })
}

// here reports whether a peer is a member that is not gone.
func here(s State, p plan.PeerID) bool {
	m, known := s.Member(p)
	return known && m.State != Gone
}

// stays reports whether a peer is a member that is there and not about to leave.
func stays(s State, p plan.PeerID) bool {
	m, _ := s.Member(p)
	return m.stays()
}
