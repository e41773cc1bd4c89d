package model

import "pnode/kernels"

// residuals passes calls on, the sum of a residual together with the norm of it where that comes
// next: a block ends with the one and the block behind it begins with the other. The bits are those
// of the two calls; what is saved is reading the sum again, and a launch.
type residuals struct {
	issuer
	sum  kernels.Call // waits for the next call
	open bool         // whether there is one
}

func (r *residuals) Do(c kernels.Call) {
	if r.open {
		r.open = false
		if both, ok := addNorm(r.sum, c); ok {
			r.issuer.Do(both)
			return
		}
		r.issuer.Do(r.sum)
	}
	if c.Op == kernels.OpAdd {
		r.sum, r.open = c, true
		return
	}
	r.issuer.Do(c)
}

// end passes on what waits.
func (r *residuals) end() {
	if r.open {
		r.open = false
		r.issuer.Do(r.sum)
	}
}

// addNorm is a sum and the norm of it as one call, if they are that, and may be: the norm's result
// could lie over a part of a term, where layers share the room of what is not kept.
func addNorm(sum, norm kernels.Call) (both kernels.Call, ok bool) {
	s, n := sum.Args, norm.Args
	rows, width, eps := norm.Dims[0], norm.Dims[1], norm.Scalars[0]
	switch {
	case norm.Op == kernels.OpLayerNormForward && n[3] == s[0]:
		both = kernels.AddLayerNormForward(n[0], s[0], n[1], n[2], s[1], s[2], n[4], n[5], rows, width, eps)
	case norm.Op == kernels.OpRMSNormForward && n[2] == s[0]:
		both = kernels.AddRMSNormForward(n[0], s[0], n[1], s[1], s[2], n[3], rows, width, eps)
	default:
		return both, false
	}
	return both, both.Check() == nil
}
