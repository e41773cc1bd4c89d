package cpu

import "pnode/kernels"

func (d *Device) adamW(c kernels.Call) error {
	param, m, v, grad := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2]), floats(c.Args[4])
	s := c.Scalars
	s[adamRest1], s[adamRest2] = 1-s[adamRest1], 1-s[adamRest2]
	s[adamRate1], s[adamRate2] = 1/s[adamRate1], 1/s[adamRate2]
	update := func(from, to int) {
		d.v.adamW(param[from:to], m[from:to], v[from:to], grad[from:to], &s)
	}
	if !c.Args[3].Present() {
		d.ranges(len(param), update)
		return nil
	}
	return d.rounded(c, c.Args[3], param, update)
}

// Scalars of the inner loop: those of kernels.AdamWScalars, with 1-Beta for Beta and
// 1/Correction for Correction.
const (
	adamLR = iota
	adamRest1
	adamRest2
	adamEps
	adamDecay
	adamRate1
	adamRate2
	adamGradScale
)
