package kernels

// Rounding says how a call rounds float32 to BF16. The zero value rounds to nearest, ties to even,
// and is the only one for F16.
//
// Stochastic rounding takes element i to one of its two neighbours by chance, the nearer one the
// likelier, so that the mean is right (Gupta et al. 2015, "Deep Learning with Limited Numerical
// Precision", section 3): the upper 16 bits of word First+i of Random are added to the bits of
// the float, and the lower 16 of the sum are dropped. What BF16 can hold stays as it is, NaN stays
// NaN. The result is a function of the float and its number alone, on every backend.
type Rounding struct {
	Stochastic bool
	First      int
	Random     Random
}

// of is a call, whose first dimension is the number of elements, that rounds so.
func (r Rounding) of(c Call) Call {
	if r.Stochastic {
		c.Flags |= Stochastic
		c.Dims[1], c.Random = r.First, r.Random
	}
	return c
}
