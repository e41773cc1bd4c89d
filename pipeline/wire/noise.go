package wire

import (
	"pnode/kernels/quant"
	"pnode/planner/plan"
)

// Noise is the key of the numbers by which a tensor is rounded. The n-th number is a function
// of key and n, so that a tensor is rounded the same whenever and wherever it is computed.
type Noise uint64

// Crossing names one tensor on its way over a boundary between stages, by what does not
// change with the generation, the number of stages or the schedule.
type Crossing struct {
	Step  plan.Step
	Micro plan.Micro
	// Layer is the first one behind the boundary.
	Layer int
	// Back tells a gradient from an activation.
	Back bool
}

// NoiseOf is the key for a crossing in a run of this seed.
func NoiseOf(seed uint64, c Crossing) Noise {
	n := Noise(seed)
	direction := uint64(0)
	if c.Back {
		direction = 1
	}
	for _, v := range [...]uint64{uint64(c.Step), uint64(c.Micro), uint64(c.Layer), direction} {
		n = Noise(n.at(v))
	}
	return n
}

// at is the number i.
func (n Noise) at(i uint64) uint64 { return quant.Number(uint64(n), i) }
