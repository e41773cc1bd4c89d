package model

import "pnode/kernels"

// supportCheck asks a device about calls and keeps the first refusal.
type supportCheck struct {
	device kernels.Device
	err    error
}

func (c *supportCheck) Do(call kernels.Call) {
	if c.err == nil {
		c.err = c.device.Supports(call)
	}
}

// supported asks the device about every call of a step.
func (s *Stack) supported() error {
	check := &supportCheck{device: s.cfg.Device}
	s.rehearse(check)
	return check.err
}

// Prepare takes for a queue what the calls of a step need besides the stack's memory, so that
// none fails for want of it.
func (s *Stack) Prepare(q kernels.Queue) error {
	preparer, ok := q.(kernels.Preparer)
	if !ok {
		return nil
	}
	p := &preparation{queue: preparer}
	s.rehearse(p)
	return p.err
}

// preparation takes what calls need and keeps the first error.
type preparation struct {
	queue kernels.Preparer
	err   error
}

func (p *preparation) Do(call kernels.Call) {
	if p.err == nil {
		p.err = p.queue.Prepare(call)
	}
}

// rehearse issues every call of a step's passes; slots differ by offsets only.
func (s *Stack) rehearse(q issuer) {
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
		if s.cfg.Segments > 1 {
			first := s.all.of(Segment{Count: s.cfg.Segments})
			l.forward(q, first)
			l.backwardInput(q, first)
		}
	}
	if s.cfg.ForwardOnly && f.head != nil {
		f.head.loss(q)
	}
}
