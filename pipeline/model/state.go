package model

import (
	"fmt"

	"pnode/kernels"
)

// State holds the vectors of layers [First,End) that last: parameters, gradients, optimizer moments and,
// with storage in halves, a copy of the parameters. Layers have their global index; one that is not
// held is a broken invariant and panics.
type State struct {
	cfg           StackConfig
	params, grads []kernels.View   // by local layer, [LayerLen] and [TrainedLen]
	copies        []kernels.View   // by local layer, [LayerLen] in halves; none with F32 storage
	partials      [][]kernels.View // by number and local layer, [TrainedLen]
	moments       [][]kernels.View // by moment and local layer, as long as Owned
	windows       [][]kernels.View // by number and moment
	scratch       kernels.View     // [Scratch]
	previous      [][]kernels.View // by local layer, the trained parameters and the moments before an update
}

// newState takes the vectors of a configuration from memory.
func newState(cfg StackConfig, mem *memory) State {
	s := State{cfg: cfg}
	m, shared := cfg.Model, s.SharedTail()
	tied := cfg.share(0).Of(Range{0, min(shared, m.TiedGradLen())})
	s.params = s.vectors(&mem.params, 0, m.LayerLen, shared)
	s.grads = make([]kernels.View, len(s.params))
	if !cfg.ForwardOnly {
		s.grads = s.vectors(&mem.grads, 0, m.TrainedLen, 0)
		for range cfg.Partials {
			s.partials = append(s.partials, s.vectors(&mem.partials, 0, m.TrainedLen, 0))
		}
	}
	if cfg.Storage != StorageF32 {
		s.copies = s.vectors(&mem.copies, 0, m.LayerLen, shared)
	}
	kept := &mem.moments
	if cfg.Offload {
		kept = &mem.hosted
	}
	for i := range cfg.Moments {
		s.moments = append(s.moments, s.vectors(kept, i, func(layer int) int { return Total(s.Owned(layer, i)) }, tied.Len()))
	}
	s.takeWindows(&mem.windows, tied.Len())
	s.scratch = mem.scratch.take(cfg.Scratch)
	if cfg.Undo {
		for l := cfg.First; l < cfg.End; l++ {
			var kept []kernels.View
			for _, v := range s.updated(l) {
				kept = append(kept, mem.previous.take(v.Len))
			}
			s.previous = append(s.previous, kept)
		}
	}
	return s
}

// SharedTail returns how many elements at the end of the head's vectors are the front of the
// embedding's: the tied matrix where both are held. Parameters and moments share memory there,
// which an optimizer must update once. Gradients do not: their sum has the same order on every cut.
func (s *State) SharedTail() int {
	if s.cfg.First > 0 || s.cfg.End < s.cfg.Model.Layers() {
		return 0
	}
	return s.cfg.Model.TiedLen()
}

// vectors takes a flat vector of length(layer) for each layer, as one of the arena's kinds of them. The head's comes right
// before the embedding's, so that a shared tail is part of both.
func (s *State) vectors(a *arena, kind int, length func(layer int) int, shared int) []kernels.View {
	views := make([]kernels.View, s.cfg.End-s.cfg.First)
	for k := range views {
		i := (k + len(views) - 1) % len(views)
		n := length(s.cfg.First + i)
		a.next = part{layer: s.cfg.First + i, vector: kind}
		if shared > 0 && i == len(views)-1 {
			own := a.takePacked(n-shared, length(s.cfg.First))
			views[i] = kernels.View{Buf: own.Buf, Off: own.Off, Len: n}
			continue
		}
		views[i] = a.take(n)
	}
	return views
}

// Params is a layer's flat parameter vector [LayerLen].
func (s *State) Params(layer int) kernels.View { return s.params[s.local(layer)] }

// Grads is a layer's flat gradient vector [TrainedLen], laid out like the end of Params; empty with
// ForwardOnly.
func (s *State) Grads(layer int) kernels.View { return s.grads[s.local(layer)] }

// Partial returns vector i of [0,Partials), laid out like a layer's Grads: a sum of gradients that waits
// while Grads takes others.
func (s *State) Partial(layer, i int) kernels.View { return s.partials[i][s.local(layer)] }

// Owned returns the elements of a layer's gradient for which moment i is held.
func (s *State) Owned(layer, i int) []Range {
	return StateLayout{s.cfg.Model, s.cfg.WholeMatrices}.Owned(layer, i, s.cfg.share(s.local(layer)))
}

// Moment is vector i of a layer's optimizer state, zero at first: the Owned elements of
// Grads one after the other. It is on the device or, with Offload, in the host's memory, where
// host.Read and host.Write work on it as on any other.
func (s *State) Moment(layer, i int) kernels.View { return s.moments[i][s.local(layer)] }

// Scratch returns memory that an update may overwrite [Scratch].
func (s *State) Scratch() kernels.View { return s.scratch }

// updated returns what an update changes of a layer in float32.
func (s *State) updated(layer int) []kernels.View {
	params, frozen := s.Params(layer), s.cfg.Model.FrozenLen(layer)
	all := []kernels.View{params.Slice(frozen, params.Len-frozen)}
	for i := range s.moments {
		all = append(all, s.Moment(layer, i))
	}
	return all
}

// KeepState enqueues copies of what an update changes, in a stack with Undo.
func (s *State) KeepState(q kernels.Queue) {
	s.eachPrevious(func(now, previous kernels.View) { q.Do(kernels.Copy(previous, now, now.Len)) })
}

// UndoState enqueues the copies back. Parameters in halves are to be rounded anew.
func (s *State) UndoState(q kernels.Queue) {
	s.eachPrevious(func(now, previous kernels.View) { q.Do(kernels.Copy(now, previous, now.Len)) })
}

func (s *State) eachPrevious(f func(now, previous kernels.View)) {
	for i, kept := range s.previous {
		for k, now := range s.updated(s.cfg.First + i) {
			if now.Len > 0 {
				f(now, kept[k])
			}
		}
	}
}

// Unscale enqueues the division of a layer's Grads by the scale of F16 storage, after the last
// micro-batch that is added to them. With other storages it does nothing.
func (s *State) Unscale(q kernels.Queue, layer int) { s.unscale(q, layer) }

func (s *State) unscale(q issuer, layer int) {
	if g, by := s.grads[s.local(layer)], s.cfg.scale(); by != 1 && g.Len > 0 {
		q.Do(kernels.Scale(g, g.Len, 1/by))
	}
}

func (s *State) local(layer int) int {
	if layer < s.cfg.First || layer >= s.cfg.End {
		panic(fmt.Sprintf("model: layer %d is none of %s", layer, s.cfg.layers()))
	}
	return layer - s.cfg.First
}
