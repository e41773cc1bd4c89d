package checkpointer

import (
	"cmp"
	"slices"

	"pnode/checkpoint"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// lack is a chunk that a member of a plan has not stored at the plan's start.
type lack struct {
	by      plan.PeerID
	hash    plan.Hash
	bytes   int64
	moments bool          // it has no parameters
	holders []plan.PeerID // that may be asked
}

// share holds the chunks that one source is asked for.
type share struct {
	chunks  []plan.Hash
	bytes   int64
	holders []plan.PeerID // of some of the chunks, the source first

	// asked counts the questions for it, of which so many are running. done: it is here, or nobody has it.
	asked, running int
	done           bool
}

// lacksOf returns the chunks of layers that members of a plan have not stored, as the log says: parameters before moments, which the
// first step's end waits for, and the largest first. All nodes compute the same order.
func lacksOf(p plan.Plan, layers []consensus.LayerRef, s consensus.State) (all []lack) {
	type need struct {
		by    plan.PeerID
		layer int
	}
	counted, sources := map[need]bool{}, map[int][]plan.PeerID{}
	for i, l := range layers {
		sources[i] = staying(s, l.Holders)
	}
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			for i, l := range layers {
				n := need{place.Peer, i}
				if !place.Layers.Contains(l.Layer) || counted[n] || slices.Contains(l.Holders, place.Peer) {
					continue
				}
				counted[n] = true
				cut := cutOf(s.Run, l.Layer, l.SizeBytes)
				for c, h := range l.Chunks {
					all = append(all, lack{place.Peer, h, cut.Chunk(c), cut.Begins(c) >= cut.Head, sources[i]})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b lack) int {
		if a.moments != b.moments {
			return map[bool]int{false: -1, true: 1}[a.moments]
		}
		return cmp.Compare(b.bytes, a.bytes)
	})
	return all
}

// staying returns the holders that stay in the run, and all of them where none does. A member that leaves may be gone before
// it has sent a chunk to its end: it goes as soon as the log names others that have all of it.
func staying(s consensus.State, holders []plan.PeerID) []plan.PeerID {
	stay := slices.DeleteFunc(slices.Clone(holders), func(p plan.PeerID) bool {
		m, _ := s.Member(p)
		return m.State != consensus.Active
	})
	if len(stay) == 0 {
		return holders
	}
	return stay
}

// sourcesFor returns which holder a member asks first for each chunk that it lacks. All members of a plan load at the same
// time. Each chunk in turn comes from the holder that has the fewest bytes to send so far, so that no line carries much more
// than another. This is list scheduling, the longest job first (Graham 1969).
func sourcesFor(self plan.PeerID, all []lack) map[plan.Hash]plan.PeerID {
	from, sends := map[plan.Hash]plan.PeerID{}, map[plan.PeerID]int64{}
	for _, c := range all {
		if len(c.holders) == 0 {
			continue
		}
		least := slices.MinFunc(c.holders, func(a, b plan.PeerID) int { return cmp.Compare(sends[a], sends[b]) })
		sends[least] += c.bytes
		if c.by == self {
			from[c.hash] = least
		}
	}
	return from
}

// shares returns what is to be fetched of a part of wanted layers, by source. Chunks that have both are parameters.
func (s PlanSaver) shares(layers []consensus.LayerRef, wanted []int, of pipeline.Part) []share {
	state := s.Consensus.State()
	sources := sourcesFor(s.Self, lacksOf(s.plan, layers, state))
	var all []share
	for _, l := range layers {
		order := s.Fetcher.order(l.Holders)
		if !slices.Contains(wanted, l.Layer) || len(order) == 0 {
			continue
		}
		cut := cutOf(state.Run, l.Layer, l.SizeBytes)
		for i, h := range l.Chunks {
			if s.Store.HasChunk(h) || (cut.Begins(i) >= cut.Head) != (of == pipeline.Moments) {
				continue
			}
			from, ok := sources[h]
			if !ok {
				from = order[0]
			}
			all = withChunk(all, from, h, cut.Chunk(i), l.Holders, s.Self)
		}
	}
	return all
}

// addOwn adds to shares what replicas here begin with for themselves: most of it is with one member alone.
func (s PlanSaver) addOwn(all []share, wanted []int) []share {
	run, seen := s.Consensus.State().Run, map[plan.Hash]bool{}
	for _, pipe := range s.plan.Replicas {
		if pipe.Own == nil || run == nil {
			continue
		}
		layers, err := s.ownAt(*pipe.Own)
		if err != nil {
			continue // Load says why
		}
		for _, l := range layers {
			order := s.Fetcher.order(l.Holders)
			mine := func(at plan.Placement) bool { return at.Peer == s.Self && at.Layers.Contains(l.Layer) }
			if len(order) == 0 || l.Layer >= run.Model.Layers() || !slices.Contains(wanted, l.Layer) || !slices.ContainsFunc(pipe.Stages, mine) {
				continue
			}
			cut := ownCutOf(*run, l.Layer, l.SizeBytes)
			for i, h := range l.Chunks {
				if s.Store.HasChunk(h) || seen[h] || pipe.Own.Copied && cut.Begins(i) >= cut.Head {
					continue
				}
				seen[h] = true
				all = withChunk(all, order[0], h, cut.Chunk(i), l.Holders, s.Self)
			}
		}
	}
	return all
}

// withChunk adds a chunk to the share of its source.
func withChunk(all []share, from plan.PeerID, h plan.Hash, bytes int64, holders []plan.PeerID, self plan.PeerID) []share {
	at := slices.IndexFunc(all, func(of share) bool { return of.holders[0] == from })
	if at < 0 {
		at, all = len(all), append(all, share{holders: []plan.PeerID{from}})
	}
	all[at].add(h, bytes, holders, self)
	return all
}

// add puts a chunk to a share, with those that have it. self is not asked.
func (s *share) add(h plan.Hash, bytes int64, holders []plan.PeerID, self plan.PeerID) {
	s.chunks, s.bytes = append(s.chunks, h), s.bytes+bytes
	for _, p := range holders {
		if p != self && !slices.Contains(s.holders, p) {
			s.holders = append(s.holders, p)
		}
	}
}

// cutOf returns how a layer's state is cut that the plan's workers save.
func (s PlanSaver) cutOf(run plan.RunSpec, own bool, layer int) checkpoint.Cut {
	if s.plan.Local == nil {
		return cutOf(&run, layer, int64(pipeline.LayerStateBytes(run, layer)))
	}
	common, mine := pipeline.LocalStateBytes(run, s.plan.Local.Codec, layer)
	if !own {
		return cutOf(&run, layer, int64(common))
	}
	return ownCutOf(run, layer, int64(mine))
}

// ownCutOf returns how what a replica has for itself of a layer is cut, of so many bytes: moments come first.
func ownCutOf(run plan.RunSpec, layer int, bytes int64) checkpoint.Cut {
	return checkpoint.Cut{Bytes: bytes, Head: min(bytes, int64(pipeline.LayerStateBytes(run, layer)-4*run.Model.LayerLen(layer)))}
}

// cutOf returns how a layer's state of so many bytes is cut into chunks, as this program cuts. All of it is parameters where no run says what
// it has.
func cutOf(run *plan.RunSpec, layer int, bytes int64) checkpoint.Cut {
	cut := checkpoint.Cut{Bytes: bytes, Head: bytes}
	if run != nil && layer < run.Model.Layers() {
		cut.Head = min(bytes, 4*int64(run.Model.LayerLen(layer)))
	}
	return cut
}
