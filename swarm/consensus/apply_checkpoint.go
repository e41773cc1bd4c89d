package consensus

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

func (e StageSaved) apply(s State) (State, error) {
	if s.Run == nil {
		return s, errNoRun
	}
	if err := e.check(s); err != nil {
		return s, fmt.Errorf("stage saved, step %d: %w", e.Step, err)
	}
	older := slices.IndexFunc(s.Older, e.of)
	if e.of(s.Checkpoint) || older >= 0 && e.of(Restore(s).Of) {
		into := &s.Checkpoint
		if !e.of(*into) {
			s.Older = slices.Clone(s.Older)
			into = &s.Older[older]
		}
		merged, err := into.merge(e.Layers)
		if err != nil {
			return s, fmt.Errorf("stage saved, step %d is committed: %w", e.Step, err)
		}
		*into = merged
		return s, nil
	}
	if err := e.fences(s); err != nil {
		return s, fmt.Errorf("stage saved, step %d: %w", e.Step, err)
	}
	next, err := s.collect(e)
	if err != nil {
		return s, fmt.Errorf("stage saved, step %d: %w", e.Step, err)
	}
	return next, nil
}

// fences refuses what belongs to another plan or to a step that is committed.
func (e StageSaved) fences(s State) error {
	switch {
	case e.Generation != s.Plan.Generation || s.Plan.Generation == 0:
		return fmt.Errorf("generation %d, the current one is %d: %w", e.Generation, s.Plan.Generation, ErrStale)
	case s.wentBack():
		return fmt.Errorf("the run went back from generation %d: %w", e.Generation, ErrStale)
	case e.Step <= s.Checkpoint.Step:
		return fmt.Errorf("step %d is committed: %w", s.Checkpoint.Step, ErrStale)
	case e.Step > s.Run.Train.Steps:
		return fmt.Errorf("the run ends at step %d", s.Run.Train.Steps)
	}
	return nil
}

// collect puts the layers to the pending checkpoint of their step, and commits that one
// when it is complete: the pending ones of earlier steps are then dropped.
func (s State) collect(e StageSaved) (State, error) {
	i, found := slices.BinarySearchFunc(s.Pending, e.Step, func(c Checkpoint, step plan.Step) int {
		return cmp.Compare(c.Step, step)
	})
	if !found && i == 0 && len(s.Pending) == MaxPending {
		return s, fmt.Errorf("%d later steps are being saved: %w", MaxPending, ErrStale)
	}
	piece := Checkpoint{Step: e.Step, Generation: e.Generation, Last: e.Last}
	if found {
		piece = s.Pending[i]
		piece.Last = piece.Last && e.Last
	}
	piece, err := piece.merge(e.Layers)
	if err != nil {
		return s, err
	}
	s.Pending = slices.Clone(s.Pending)
	if found {
		s.Pending[i] = piece
	} else {
		s.Pending = slices.Insert(s.Pending, i, piece)
	}
	if len(piece.Layers) == s.Run.Model.Layers() {
		piece.AtMillis = s.Departures.Clock.ReadMillis
		if s.Checkpoint.Step > 0 {
			s.Older = slices.Insert(slices.Clone(s.Older), 0, s.Checkpoint)
		}
		s.Checkpoint, s.Pending = piece, s.Pending[i+1:]
		way := Way(s)
		s.Older = retain(s.Older, piece, s.Run.Train.KeepCheckpoints, len(way)-1, way[len(way)-1].Secured(s))
		s = s.cleaned().stood().kept()
	} else if len(s.Pending) > MaxPending {
		s.Pending = slices.Delete(s.Pending, 0, 1)
	}
	return s, nil
}

func (e Salvage) apply(s State) (State, error) {
	if s.Run == nil {
		return s, errNoRun
	}
	if err := e.check(s); err != nil {
		return s, fmt.Errorf("salvage step %d: %w", e.Step, err)
	}
	s.Salvage = &e
	return s, nil
}

// check refuses what belongs to another plan or to a step that is committed, and parts that are not the plan's or leave
// layers out.
func (e Salvage) check(s State) error {
	if err := (StageSaved{Step: e.Step, Generation: e.Generation}).fences(s); err != nil {
		return err
	}
	next, layers := 0, s.Run.Model.Layers()
	for _, part := range e.Parts {
		place, ok := s.Plan.Find(plan.StageID{Replica: part.Replica, Stage: part.Stage})
		if !ok {
			return fmt.Errorf("the plan has no replica %d stage %d", part.Replica, part.Stage)
		}
		if part.Layers.First != next || part.Layers.End <= next || part.Layers.First < place.Layers.First || part.Layers.End > place.Layers.End {
			return fmt.Errorf("layers [%d,%d) of replica %d stage %d, which has [%d,%d): want those from %d on",
				part.Layers.First, part.Layers.End, part.Replica, part.Stage, place.Layers.First, place.Layers.End, next)
		}
		next = part.Layers.End
		if m, ok := s.Member(part.By); !ok || m.State == Gone {
			return fmt.Errorf("layers [%d,%d) are to be saved by %q, which is not in the run", part.Layers.First, part.Layers.End, wire.Clip(string(part.By), maxName))
		}
		if part.By == place.Peer && part.From != 0 || part.From > e.Step {
			return fmt.Errorf("replica %d stage %d is to be replayed from step %d by %s", part.Replica, part.Stage, part.From, part.By.Short())
		}
	}
	if next != layers {
		return fmt.Errorf("its parts have %d layers of %d", next, layers)
	}
	return nil
}

// has reports whether a peer is to save a layer.
func (e *Salvage) has(step plan.Step, layer int, by plan.PeerID) bool {
	return e != nil && e.Step == step && slices.ContainsFunc(e.Parts, func(p SalvagePart) bool { return p.By == by && p.Layers.Contains(layer) })
}

// stood counts a committed checkpoint for everyone who is active.
func (s State) stood() State {
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		if m := &s.Members[i]; m.State == Active {
			m.Stood++
		}
	}
	return s
}

func (e Rollback) apply(s State) (State, error) {
	switch {
	case s.Run == nil:
		return s, errNoRun
	case s.Finished:
		return s, errors.New("roll back: the run is finished")
	case e.To == s.Checkpoint.Step && e.From > e.To:
		return s, nil // done already
	case e.From != s.Checkpoint.Step:
		return s, fmt.Errorf("roll back from step %d: the newest checkpoint is of step %d: %w", e.From, s.Checkpoint.Step, ErrStale)
	case e.Term < s.Term:
		return s, fmt.Errorf("roll back in term %d: the plan in force is of term %d: %w", e.Term, s.Term, ErrStale)
	case len(e.Reason) > maxText:
		return s, fmt.Errorf("roll back: reason of %d bytes, at most %d", len(e.Reason), maxText)
	}
	return s.back(e.To)
}

// back makes the checkpoint of a step the newest, and gives up those after it.
func (s State) back(to plan.Step) (State, error) {
	if s.Checkpoint.Step == to {
		return s, nil
	}
	i := slices.IndexFunc(s.Older, func(c Checkpoint) bool { return c.Step == to })
	if i < 0 {
		return s, fmt.Errorf("roll back to step %d: no checkpoint of that step is kept", to)
	}
	s.Checkpoint, s.Older, s.Pending, s.Salvage = s.Older[i], slices.Clone(s.Older[i+1:]), nil, nil
	s.Epoch++
	return s, nil
}

// merge adds layers to a checkpoint. A layer that it has must be the same bytes; its
// holders are joined in the order of their first appearance, up to MaxHolders.
func (c Checkpoint) merge(layers []LayerRef) (Checkpoint, error) {
	c.Layers = slices.Clone(c.Layers)
	for _, l := range layers {
		i, found := slices.BinarySearchFunc(c.Layers, l.Layer, func(have LayerRef, layer int) int {
			return cmp.Compare(have.Layer, layer)
		})
		if !found {
			c.Layers = slices.Insert(c.Layers, i, l)
			continue
		}
		have := &c.Layers[i]
		if have.SizeBytes != l.SizeBytes || !slices.Equal(have.Chunks, l.Chunks) {
			return c, fmt.Errorf("layer %d was saved with other contents", l.Layer)
		}
		own, copies := have.parts()
		for _, p := range l.Holders {
			if len(own) < MaxHolders && !slices.Contains(own, p) {
				own = append(own, p)
				copies = slices.DeleteFunc(copies, func(c plan.PeerID) bool { return c == p })
			}
		}
		have.hold(own, copies)
	}
	chunks := 0
	for _, l := range c.Layers {
		chunks += len(l.Chunks)
	}
	if chunks > MaxCheckpointChunks {
		return c, fmt.Errorf("%d chunks in one checkpoint, at most %d", chunks, MaxCheckpointChunks)
	}
	return c, nil
}

// parts returns the holders that have the layer for itself, and those that have it as part of a whole copy alone.
func (l LayerRef) parts() (own, copies []plan.PeerID) {
	n := len(l.Holders) - l.Whole
	return slices.Clone(l.Holders[:n]), slices.Clone(l.Holders[n:])
}

// hold sets the holders. Whole copies come last: they take nobody's place.
func (l *LayerRef) hold(own, copies []plan.PeerID) {
	copies = copies[:min(len(copies), max(0, MaxHolders-len(own)))]
	l.Holders, l.Whole = slices.Concat(own, copies), len(copies)
}

func (e KeptWhole) apply(s State) (State, error) {
	if m, ok := s.Member(e.Peer); !ok || m.State == Gone {
		return s, fmt.Errorf("kept whole, step %d: %q is not in the run: %w", e.Step, wire.Clip(string(e.Peer), maxName), ErrStale)
	}
	found := e.Step == 0
	keep := func(c Checkpoint) Checkpoint {
		has := c.Step == e.Step && c.Generation == e.Generation
		found = found || has
		c.Layers = slices.Clone(c.Layers)
		for i := range c.Layers {
			own, copies := c.Layers[i].parts()
			copies = slices.DeleteFunc(copies, func(p plan.PeerID) bool { return p == e.Peer })
			if has && !slices.Contains(own, e.Peer) {
				copies = append(copies, e.Peer)
			}
			c.Layers[i].hold(own, copies)
		}
		return c
	}
	next := s
	next.Checkpoint = keep(s.Checkpoint)
	next.Older = slices.Clone(s.Older)
	for i := range next.Older {
		next.Older[i] = keep(next.Older[i])
	}
	if !found {
		return s, fmt.Errorf("kept whole, step %d: it is no checkpoint of generation %d: %w", e.Step, e.Generation, ErrStale)
	}
	return next, nil
}

// check wants layers of the model in ascending order, with contents and known holders.
func (e StageSaved) check(s State) error {
	if len(e.Layers) == 0 {
		return errors.New("no layers")
	}
	previous := -1
	for _, l := range e.Layers {
		if l.Layer <= previous || l.Layer >= s.Run.Model.Layers() {
			return fmt.Errorf("layer %d after %d, want ascending and below %d", l.Layer, previous, s.Run.Model.Layers())
		}
		previous = l.Layer
		if l.SizeBytes < 1 || len(l.Chunks) > MaxCheckpointChunks || l.SizeBytes > int64(len(l.Chunks))*maxChunkBytes {
			return fmt.Errorf("layer %d: %d bytes in %d chunks of at most %d bytes", l.Layer, l.SizeBytes, len(l.Chunks), maxChunkBytes)
		}
		if l.Whole != 0 {
			return fmt.Errorf("layer %d: a worker reports no whole copies", l.Layer)
		}
		if len(l.Holders) < 1 || len(l.Holders) > MaxHolders {
			return fmt.Errorf("layer %d: %d holders, want 1 to %d", l.Layer, len(l.Holders), MaxHolders)
		}
		for _, h := range l.Holders {
			if _, ok := s.Member(h); !ok {
				return fmt.Errorf("layer %d is held by %q, which is not in the roster", l.Layer, wire.Clip(string(h), maxName))
			}
		}
	}
	return nil
}

// JumpReach is how many steps before the newest checkpoint a good one is kept: what spoils the weights shows in the
// losses a few steps later, when newer checkpoints may have been made of them.
const JumpReach plan.Step = 32

// retain returns the older checkpoints, newest first, that stay besides the newest one: keep-1 of them, and where
// none of these is JumpReach steps older, the newest that is, and one that will be when that one is too old. After the newest of the keep-1
// come those that restorations go by, more of them if need be: of the first way ones the last, and with which plans since then began. Where
// that last one is not secured they are additional.
func retain(older []Checkpoint, newest Checkpoint, keep, way int, secured bool) []Checkpoint {
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
		return i == 0 && (keep > 1 || !secured) || i == way-1 || i < way && older[i].Generation != next.Generation
	})
	recent()
	reaches := func(i int) bool { return older[i].Step+JumpReach <= newest.Step }
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

// Way returns the checkpoints from which layers can be computed again that a death takes along, newest first: from the newest one back to
// the newest of which each layer is held twice, or to the oldest that is kept. What others sent since that one has to stay.
func Way(s State) (way []Checkpoint) {
	for _, c := range Checkpoints(s) {
		way = append(way, c)
		if c.Secured(s) {
			break
		}
	}
	return way
}

// Secured reports whether each layer of a checkpoint is held by two members that are there and do not leave, or by one where the plan has
// no other that could. Before, a death may take the only copy of a layer along.
func (c Checkpoint) Secured(s State) bool {
	leaves := func(p plan.PeerID) bool {
		m, _ := s.Member(p)
		return !m.stays()
	}
	stay := len(slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return !m.stays() }))
	once := slices.DeleteFunc(slices.Clone(c.Layers), func(l LayerRef) bool {
		return len(slices.DeleteFunc(slices.Clone(l.Holders), leaves)) > 1
	})
	for r, pipe := range s.Plan.Replicas {
		for st, place := range pipe.Stages {
			here := slices.DeleteFunc(slices.Clone(once), func(l LayerRef) bool { return !place.Layers.Contains(l.Layer) })
			if len(here) == 0 {
				continue
			}
			holder := s.Holder(plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)})
			lacks := func(l LayerRef) bool {
				return !slices.Contains(l.Holders, place.Peer) || holder != "" && !slices.Contains(l.Holders, holder)
			}
			if stay > 1 && leaves(place.Peer) || slices.ContainsFunc(here, lacks) {
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
// all nodes name the same.
func Restore(s State) Restoration {
	r := Restoration{Of: s.Checkpoint, Layers: s.Checkpoint.Lost(s)}
	if len(r.Layers) == 0 || s.Finished {
		return Restoration{}
	}
	for _, older := range s.Older {
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

// of reports whether the layers are a checkpoint's.
func (e StageSaved) of(c Checkpoint) bool {
	return e.Step == c.Step && e.Generation == c.Generation && e.Step > 0
}

// maker returns who was the first to have a layer: who computed it.
func (l LayerRef) maker() plan.PeerID {
	if len(l.Holders) == 0 {
		return ""
	}
	return l.Holders[0]
}

// Holding returns the holders of a layer that are not gone.
func (l LayerRef) Holding(s State) []plan.PeerID {
	return slices.DeleteFunc(slices.Clone(l.Holders), func(p plan.PeerID) bool {
		m, known := s.Member(p)
		return !known || m.State == Gone
	})
}
