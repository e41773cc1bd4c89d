package simulate

import (
	"math/bits"
	"slices"

	"pnode/planner/plan"
)

// layerSet is a set of layers, one bit each.
type layerSet []uint64

func newLayerSet(layers int) layerSet { return make(layerSet, (layers+63)/64) }

func (s layerSet) add(r plan.LayerRange) {
	for l := r.First; l < r.End; l++ {
		s[l/64] |= 1 << (l % 64)
	}
}

func (s layerSet) has(l int) bool { return s[l/64]>>(l%64)&1 != 0 }

func (s layerSet) empty() bool { return s.count() == 0 }

func (s layerSet) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// covers reports whether s has all layers of o.
func (s layerSet) covers(o layerSet) bool { return s.shared(o) == o.count() }

// shared counts the layers in both.
func (s layerSet) shared(o layerSet) (n int) {
	for i := range min(len(s), len(o)) {
		n += bits.OnesCount64(s[i] & o[i])
	}
	return n
}

// with returns the layers in either.
func (s layerSet) with(o layerSet) layerSet {
	out := slices.Clone(s)
	for i := range min(len(s), len(o)) {
		out[i] |= o[i]
	}
	return out
}

// without returns the layers of s that are not in o.
func (s layerSet) without(o layerSet) layerSet {
	out := slices.Clone(s)
	for i := range min(len(s), len(o)) {
		out[i] &^= o[i]
	}
	return out
}

// seated is a plan with the machines that carry it out.
type seated struct {
	*planned
	// slot has the machine at each post, -1 for none; at has the post of each machine.
	slot []int
	at   map[int]int
}

// seat gives the posts of a plan to living machines. Who has the layers of a post in memory gets it, so that as little state
// moves as these posts allow.
func seat(p *planned, living [][]int, held map[int]layerSet) *seated {
	s := &seated{planned: p, slot: make([]int, len(p.posts)), at: map[int]int{}}
	free := make([][]int, len(living))
	for class := range living {
		free[class] = slices.Clone(living[class])
	}
	take := func(i int, fits func(slot int) bool) bool {
		class := p.posts[i].class
		at := slices.IndexFunc(free[class], fits)
		if at < 0 {
			return false
		}
		s.slot[i] = free[class][at]
		s.at[s.slot[i]] = i
		free[class] = slices.Delete(free[class], at, at+1)
		return true
	}
	var open []int
	for i, post := range p.posts {
		s.slot[i] = -1
		if !take(i, func(slot int) bool { return !post.layers.empty() && slices.Equal(held[slot], post.layers) }) {
			open = append(open, i)
		}
	}
	// Of the rest those with the most layers choose first.
	slices.SortStableFunc(open, func(a, b int) int { return p.posts[b].layers.count() - p.posts[a].layers.count() })
	for _, i := range open {
		most, best := -1, -1
		for _, slot := range free[p.posts[i].class] {
			if n := held[slot].shared(p.posts[i].layers); n > most {
				most, best = n, slot
			}
		}
		take(i, func(slot int) bool { return slot == best })
	}
	return s
}

// moves returns how long lines take for the state that machines of a plan lack: each layer comes from the machines that have it,
// in turn, and no line carries two things at once. held is what machines have in memory.
func (p *plans) moves(s *seated, held map[int]layerSet) (bytes, took int64) {
	sources := make([][]int, len(p.input.Costs))
	slots := make([]int, 0, len(held))
	for slot := range held {
		slots = append(slots, slot)
	}
	slices.Sort(slots)
	for _, slot := range slots {
		for l := range sources {
			if held[slot].has(l) {
				sources[l] = append(sources[l], slot)
			}
		}
	}
	in, out, turn := map[int]int64{}, map[int]int64{}, make([]int, len(sources))
	for i, post := range s.posts {
		for l := range sources {
			to := s.slot[i]
			if !post.layers.has(l) || to < 0 || held[to] != nil && held[to].has(l) || len(sources[l]) == 0 {
				continue
			}
			from := sources[l][turn[l]%len(sources[l])]
			turn[l]++
			size := p.stateBytes(oneLayer(len(sources), l))
			each := timeOf(size, p.classes.link(p.classes.class(from), p.classes.class(to)).BytesPerS)
			bytes += size
			in[to] += each
			out[from] += each
			took = max(took, in[to], out[from])
		}
	}
	return bytes, took
}

func oneLayer(layers, l int) layerSet {
	s := newLayerSet(layers)
	s.add(plan.LayerRange{First: l, End: l + 1})
	return s
}
