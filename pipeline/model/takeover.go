package model

import "slices"

// pair holds a region of a new stack and the region of another stack whose memory it takes over.
type pair struct{ to, from *region }

// apart returns the arenas whose regions another stack can take over: parameters and optimizer moments.
func (m *memory) apart() []*arena { return []*arena{&m.params, &m.moments, &m.hosted} }

// layers returns the layers of which a region holds state.
func (r region) layers() []int {
	if r.part.tied {
		return []int{r.part.layer, 0}
	}
	return []int{r.part.layer}
}

// takenOver returns the layers whose whole state a stack of this memory takes over, and the regions that hold it. A layer's
// state is taken over as a whole or not at all, and so are both ends of a tied embedding.
func (m *memory) takenOver(cfg StackConfig) (layers map[int]bool, pairs []pair) {
	if len(cfg.From) == 0 {
		return nil, nil
	}
	layers = map[int]bool{}
	for l, donor := range cfg.From {
		layers[l] = donor.cfg.Device == cfg.Device && donor.cfg.Host == cfg.Host && cfg.First <= l && l < cfg.End
	}
	each := func(f func(r, theirs *region)) {
		for kind, a := range m.apart() {
			for i := range a.regions {
				if r := &a.regions[i]; r.peak > 0 {
					f(r, r.counterpart(cfg.From[r.part.layer], kind))
				}
			}
		}
	}
	each(func(r, theirs *region) {
		for _, l := range r.layers() {
			layers[l] = layers[l] && theirs != nil && cfg.From[l] == cfg.From[r.part.layer]
		}
	})
	each(func(r, _ *region) { // both ends of a tied embedding, or none
		whole := !slices.ContainsFunc(r.layers(), func(l int) bool { return !layers[l] })
		for _, l := range r.layers() {
			layers[l] = whole
		}
	})
	each(func(r, theirs *region) {
		if layers[r.part.layer] {
			pairs = append(pairs, pair{r, theirs})
		}
	})
	return layers, pairs
}

// counterpart returns the region of a donor, which may be nil, that holds the same vector; nil where there is none.
func (r *region) counterpart(donor *Stack, kind int) *region {
	if donor == nil {
		return nil
	}
	theirs := donor.mem.apart()[kind].regions
	i := slices.IndexFunc(theirs, func(t region) bool { return t.buf != nil && t.part == r.part && t.peak == r.peak })
	if i < 0 {
		return nil
	}
	return &theirs[i]
}

// takeOver moves memory from donors to the stack, and returns the layers whose state came with it.
func (m *memory) takeOver(cfg StackConfig) map[int]bool {
	layers, pairs := m.takenOver(cfg)
	for _, p := range pairs {
		p.to.buf, p.from.buf = p.from.buf, nil
	}
	return layers
}

// Shrink frees everything but the parameters and the optimizer state of some layers, which another stack may take over. The
// stack runs no passes after it. Close it as any other.
func (s *Stack) Shrink(keep func(layer int) bool) {
	for _, a := range slices.Concat(s.mem.lasting(), s.mem.passing()) {
		a.freeBut(func(r region) bool {
			return a.apart && !slices.ContainsFunc(r.layers(), func(l int) bool { return !keep(l) })
		})
	}
}

// TookOver reports whether a layer has its state from a stack of StackConfig.From.
func (s *Stack) TookOver(layer int) bool { return s.tookOver[layer] }
