package model

import "pnode/kernels"

// rehearsal asks about each call instead of making it, and keeps the first error.
type rehearsal struct {
	ask func(kernels.Call) error
	err error
}

func (r *rehearsal) Do(call kernels.Call) {
	if r.err == nil {
		r.err = r.ask(call)
	}
}

// supported asks the device about every call of a step.
func (s *Stack) supported() error { return s.rehearse(s.cfg.Device.Supports) }

// Prepare takes for a queue what the calls of a step need besides the stack's memory, so that
// none fails for want of it.
func (s *Stack) Prepare(q kernels.Queue) error {
	if preparer, ok := q.(kernels.Preparer); ok {
		return s.rehearse(preparer.Prepare)
	}
	return nil
}

// rehearse asks about every call of a step's passes; slots differ by offsets only.
func (s *Stack) rehearse(ask func(kernels.Call) error) error {
	q := &rehearsal{ask: ask}
	s.roundWeights(q, Noise{})
	s.roundWeights(q, Noise{On: true})
	f := &s.slots[0]
	f.noise.On = true
	if !s.cfg.ForwardOnly {
		f.rescale(q, last(f.dx), s.all, s.cfg.scale())
		f.rescale(q, f.dx[0], s.all, s.cfg.scale())
	}
	for i, l := range f.layers {
		l.forward(q, s.all)
		if s.cfg.ForwardOnly {
			continue
		}
		l.backward(q)
		s.unscale(q, s.cfg.First+i)
		if g := s.grads[i]; len(s.partials) > 0 && g.Len > 0 { // to add groups of micro-batches up
			p := s.partials[0][i]
			q.Do(kernels.Add(p, p, g, g.Len))
			q.Do(kernels.Copy(p, g, g.Len))
			q.Do(kernels.Fill(g, g.Len, 0))
		}
		if s.cfg.Segments > 1 {
			first := s.all.of(Segment{Count: s.cfg.Segments})
			l.forward(q, first)
			l.backwardInput(q, first)
		}
	}
	if s.cfg.ForwardOnly && f.head != nil {
		f.head.loss(q)
	}
	return q.err
}
