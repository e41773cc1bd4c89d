package wire

import "pnode/planner"

// Noise is the key of the numbers by which a tensor is rounded. The n-th number is a function
// of key and n, so that a tensor is rounded the same whenever and wherever it is computed.
type Noise uint64

// Crossing names one tensor on its way over a boundary between stages, by what does not
// change with the generation, the number of stages or the schedule.
type Crossing struct {
	Step  planner.Step
	Micro planner.Micro
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

// at is the number i, 64 even bits: the output function of SplitMix64 on the state that i
// steps lead to (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators").
func (n Noise) at(i uint64) uint64 {
	z := uint64(n) + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
