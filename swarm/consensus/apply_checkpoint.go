package consensus

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/wire"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus/rounds"
)

func (e StageSaved) apply(s State) (State, error) {
	if s.Run == nil {
		return s, errNoRun
	}
	if err := e.check(s); err != nil {
		return s, fmt.Errorf("stage saved, step %d: %w", e.Step, err)
	}
	older := slices.IndexFunc(s.Older, e.of)
	stores := func(l LayerRef) bool { return len(l.Holders) == 1 && e.stores(s, l.Layer, l.Holders[0]) }
	if e.of(s.Checkpoint) || older >= 0 && (e.of(Restore(s).Of) || !slices.ContainsFunc(e.Layers, func(l LayerRef) bool { return !stores(l) })) {
		into := &s.Checkpoint
		if !e.of(*into) {
			s.Older = slices.Clone(s.Older)
			into = &s.Older[older]
		}
		merged, err := into.merge(s, e)
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
	case s.Plan.Local != nil && !slices.ContainsFunc(s.Pending, e.of):
		return fmt.Errorf("replicas with local steps save what an outer step says, none that is pending says step %d: %w", e.Step, ErrStale)
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
	piece := Checkpoint{Step: e.Step, Generation: e.Generation, Last: e.Last, Stream: rounds.Rest(*s.Run, s.Plan, e.Step)}
	if found {
		piece = s.Pending[i]
		piece.Last = piece.Last && e.Last
	}
	piece, err := piece.merge(s, e)
	if err != nil {
		return s, err
	}
	s.Pending = slices.Clone(s.Pending)
	if found {
		s.Pending[i] = piece
	} else {
		s.Pending = slices.Insert(s.Pending, i, piece)
	}
	if piece.complete(*s.Run) {
		piece.AtMillis = s.Departures.Clock.ReadMillis
		if s.Checkpoint.Step > 0 {
			s.Older = slices.Insert(slices.Clone(s.Older), 0, s.Checkpoint)
		}
		s.Checkpoint, s.Pending = piece, s.Pending[i+1:]
		s.CopyFailures = s.CopyFailures.At(s.Departures.Clock.Millis)
		line := RecoveryLine(s)
		s.Older = retain(s.Older, piece, jumpReach(s.Plan), s.Run.Train.KeepCheckpoints, len(line)-1, line[len(line)-1].Secured(s))
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
	if s.Plan.Local != nil {
		return errors.New("replicas with local steps have no step in common but outer ones")
	}
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
			return fmt.Errorf("layers %v of replica %d stage %d, which has %v: want those from %d on",
				part.Layers, part.Replica, part.Stage, place.Layers, next)
		}
		next = part.Layers.End
		if m, ok := s.Member(part.By); !ok || m.State == Gone {
			return fmt.Errorf("layers %v are to be saved by %q, which is not in the run", part.Layers, wire.Clip(string(part.By), maxName))
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
	s.Round, s.Merged = nil, nil
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

// merge adds layers to a checkpoint, or to what a replica of it has for itself.
func (c Checkpoint) merge(s State, e StageSaved) (_ Checkpoint, err error) {
	if e.Own == nil {
		c.Layers, err = e.join(s, c.Layers)
	} else {
		i := slices.IndexFunc(c.Own, func(o OwnState) bool { return o.Replica == *e.Own })
		if i < 0 {
			return c, fmt.Errorf("replica %d has no state of its own there, as its outer step has not counted it", *e.Own)
		}
		c.Own = slices.Clone(c.Own)
		c.Own[i].Layers, err = e.join(s, c.Own[i].Layers)
	}
	if err != nil {
		return c, err
	}
	chunks := 0
	for _, o := range append([]OwnState{{Layers: c.Layers}}, c.Own...) {
		for _, l := range o.Layers {
			chunks += len(l.Chunks)
		}
	}
	if chunks > MaxCheckpointChunks {
		return c, fmt.Errorf("%d chunks in one checkpoint, at most %d", chunks, MaxCheckpointChunks)
	}
	return c, nil
}

// complete reports whether a checkpoint has every layer, and the own state of one replica where replicas have such.
func (c Checkpoint) complete(run plan.RunSpec) bool {
	return len(c.Layers) == run.Model.Layers() &&
		(len(c.Own) == 0 || slices.ContainsFunc(c.Own, func(o OwnState) bool { return c.hasOwn(run, o.Replica) }))
}

// hasOwn reports whether a checkpoint has all of what a replica had for itself.
func (c Checkpoint) hasOwn(run plan.RunSpec, r plan.Replica) bool {
	return slices.ContainsFunc(c.Own, func(o OwnState) bool { return o.Replica == r && o.Whole(run) })
}

// Whole reports whether the state has every layer of which anything is trained.
func (o OwnState) Whole(run plan.RunSpec) bool {
	trained := 0
	for layer := range run.Model.Layers() {
		if run.Model.TrainedLen(layer) > 0 {
			trained++
		}
	}
	return len(o.Layers) == trained
}

// join adds layers to others. A layer that is there must be the same bytes; its
// holders are joined in the order of their first appearance, up to MaxHolders. Who has stored a layer has it stored from then on.
func (e StageSaved) join(s State, layers []LayerRef) ([]LayerRef, error) {
	layers = slices.Clone(layers)
	for _, l := range e.Layers {
		i, found := slices.BinarySearchFunc(layers, l.Layer, func(have LayerRef, layer int) int {
			return cmp.Compare(have.Layer, layer)
		})
		if !found {
			if e.Unstored != 0 {
				l.Unstored = []Process{{l.Holders[0], e.Unstored}}
			}
			layers = slices.Insert(layers, i, l)
			continue
		}
		have := &layers[i]
		if have.SizeBytes != l.SizeBytes || !slices.Equal(have.Chunks, l.Chunks) {
			return layers, fmt.Errorf("layer %d of %q is not that of %q, and both should be the same", l.Layer, s.NameOf(l.Holders[0]), s.NameOf(have.Holders[0]))
		}
		own, copies := have.parts()
		unstored := slices.Clone(have.Unstored)
		for _, p := range l.Holders {
			switch at := slices.IndexFunc(unstored, func(u Process) bool { return u.Peer == p }); {
			case at >= 0 && e.Unstored == 0:
				unstored = slices.Delete(unstored, at, at+1)
			case at >= 0:
				unstored[at].ProcessEpoch = e.Unstored
			case e.Unstored != 0 && !slices.Contains(have.Holders, p):
				unstored = append(unstored, Process{p, e.Unstored})
			}
			if !slices.Contains(own, p) {
				own = append(own, p)
				copies = slices.DeleteFunc(copies, func(c plan.PeerID) bool { return c == p })
			}
		}
		have.Unstored = unstored
		have.hold(s, own, copies)
	}
	return layers, nil
}

// parts returns the holders that have the layer for itself, and those that have it as part of a whole copy alone.
func (l LayerRef) parts() (own, copies []plan.PeerID) {
	n := len(l.Holders) - l.Whole
	return slices.Clone(l.Holders[:n]), slices.Clone(l.Holders[n:])
}

// hold sets the holders. Where they are more than MaxHolders, members that are gone give up their places, or that have lost it with their
// process, but for who computed the layer.
// Whole copies come last: they take nobody's place.
func (l *LayerRef) hold(s State, own, copies []plan.PeerID) {
	gone := func(p plan.PeerID) bool { return len(own) > 0 && p != own[0] && (!here(s, p) || !l.has(s, p)) }
	if len(own)+len(copies) > MaxHolders {
		own, copies = slices.DeleteFunc(slices.Clone(own), gone), slices.DeleteFunc(slices.Clone(copies), gone)
	}
	own = own[:min(len(own), MaxHolders)]
	copies = copies[:min(len(copies), MaxHolders-len(own))]
	l.Holders, l.Whole = slices.Concat(own, copies), len(copies)
	l.Unstored = slices.DeleteFunc(slices.Clone(l.Unstored), func(u Process) bool { return !slices.Contains(l.Holders, u.Peer) })
	if len(l.Unstored) == 0 {
		l.Unstored = nil
	}
}

// StoredBy reports whether a holder has the layer on its disk, as far as is known.
func (l LayerRef) StoredBy(peer plan.PeerID) bool {
	return slices.Contains(l.Holders, peer) && !slices.ContainsFunc(l.Unstored, func(u Process) bool { return u.Peer == peer })
}

// has reports whether a holder has the layer, stored or in the memory of the process that runs.
func (l LayerRef) has(s State, holder plan.PeerID) bool {
	m, _ := s.Member(holder)
	return !slices.ContainsFunc(l.Unstored, func(u Process) bool { return u.Peer == holder && u.ProcessEpoch != m.ProcessEpoch })
}

// Kept returns the holders of a layer, whether they are gone or not, but for those that had it in the memory of a process which has ended.
func (l LayerRef) Kept(s State) []plan.PeerID {
	return slices.DeleteFunc(slices.Clone(l.Holders), func(p plan.PeerID) bool {
		return !l.has(s, p) || !l.StoredBy(p) && !here(s, p)
	})
}

func (e KeptWhole) apply(s State) (State, error) {
	if m, ok := s.Member(e.Peer); !ok || m.State == Gone {
		return s, fmt.Errorf("kept whole, step %d: %q is not in the run: %w", e.Step, wire.Clip(string(e.Peer), maxName), ErrStale)
	}
	found := e.Step == 0
	keep := func(c Checkpoint) Checkpoint {
		has := c.Step == e.Step && c.Generation == e.Generation
		if e.Own == nil {
			has = has && len(c.Own) == 0
		} else {
			has = has && c.hasOwn(*s.Run, *e.Own)
		}
		found = found || has
		c.Layers = e.keep(s, c.Layers, has)
		c.Own = slices.Clone(c.Own)
		for i, o := range c.Own {
			c.Own[i].Layers = e.keep(s, o.Layers, has && o.Replica == *e.Own)
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

// keep returns layers with the peer among the holders of whole copies, or not.
func (e KeptWhole) keep(s State, layers []LayerRef, has bool) []LayerRef {
	layers = slices.Clone(layers)
	for i := range layers {
		own, copies := layers[i].parts()
		copies = slices.DeleteFunc(copies, func(p plan.PeerID) bool { return p == e.Peer })
		if has && !slices.Contains(own, e.Peer) {
			copies = append(copies, e.Peer)
		}
		if has {
			layers[i].Unstored = slices.DeleteFunc(slices.Clone(layers[i].Unstored), func(u Process) bool { return u.Peer == e.Peer })
		}
		layers[i].hold(s, own, copies)
	}
	return layers
}

func (e CopyFailed) apply(s State) (State, error) {
	if s.CopyFailures.Between(e.Peer, e.Holder) {
		return s, nil
	}
	if !e.current(s) {
		return s, fmt.Errorf("copy failed: %q keeps no copy of what %q computes: %w", wire.Clip(string(e.Holder), maxName), wire.Clip(string(e.Peer), maxName), ErrStale)
	}
	if n := len(s.CopyFailures.Of(e.Peer)); n >= holders.MaxFailures {
		return s, fmt.Errorf("copy failed: %s gets copies to none of %d others already: its own lines are to be looked at", e.Peer.Short(), n)
	}
	s.CopyFailures = s.CopyFailures.With(holders.Failure{Peer: e.Peer, Holder: e.Holder, AtMillis: s.Departures.Clock.Millis})
	return s, nil
}

// current reports whether the holder is that of a stage which the peer computes now.
func (e CopyFailed) current(s State) bool {
	for r, pipe := range s.Plan.Replicas {
		for st, place := range pipe.Stages {
			if s.Substitute.Carrier(place.Peer) == e.Peer && s.Holder(plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(st)}) == e.Holder && e.Holder != "" {
				return true
			}
		}
	}
	return false
}

// check wants layers of the model in ascending order, with contents and known holders.
func (e StageSaved) check(s State) error {
	if len(e.Layers) == 0 {
		return errors.New("no layers")
	}
	if e.Unstored != 0 && s.StopWanted {
		return errors.New("layers in memory alone: the run stops, and they are lost with its processes unless they are stored")
	}
	previous := -1
	for _, l := range e.Layers {
		if l.Layer <= previous || l.Layer >= s.Run.Model.Layers() {
			return fmt.Errorf("layer %d after %d, want ascending and below %d", l.Layer, previous, s.Run.Model.Layers())
		}
		if e.Own != nil && s.Run.Model.TrainedLen(l.Layer) == 0 {
			return fmt.Errorf("layer %d: nothing of it is trained, so no replica has anything of it for itself", l.Layer)
		}
		previous = l.Layer
		if l.SizeBytes < 1 || len(l.Chunks) > MaxCheckpointChunks || l.SizeBytes > int64(len(l.Chunks))*maxChunkBytes {
			return fmt.Errorf("layer %d: %d bytes in %d chunks of at most %d bytes", l.Layer, l.SizeBytes, len(l.Chunks), maxChunkBytes)
		}
		if l.Whole != 0 || len(l.Unstored) > 0 {
			return fmt.Errorf("layer %d: a worker reports no whole copies, and of itself alone what is not stored", l.Layer)
		}
		if e.Unstored != 0 && len(l.Holders) != 1 {
			return fmt.Errorf("layer %d is in memory alone: %d holders, want 1", l.Layer, len(l.Holders))
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

// Unsaved returns the nodes of the plan's first replica that have not yet reported all of their layers of a step's checkpoint, in the order of stages.
// Each does when its stage is stored and copied.
func Unsaved(s State, step plan.Step) (peers []plan.PeerID) {
	if step <= s.Checkpoint.Step || len(s.Plan.Replicas) == 0 {
		return nil
	}
	var made Checkpoint
	if i := slices.IndexFunc(s.Pending, func(c Checkpoint) bool { return c.Step == step }); i >= 0 {
		made = s.Pending[i]
	}
	for _, place := range s.Plan.Replicas[0].Stages {
		saved := 0
		for _, l := range made.Layers {
			if place.Layers.Contains(l.Layer) {
				saved++
			}
		}
		if by := s.Substitute.Carrier(place.Peer); saved < place.Layers.Len() && !slices.Contains(peers, by) {
			peers = append(peers, by)
		}
	}
	return peers
}

// of reports whether the layers are a checkpoint's.
func (e StageSaved) of(c Checkpoint) bool {
	return e.Step == c.Step && e.Generation == c.Generation && e.Step > 0
}
