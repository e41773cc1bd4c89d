package dataset

import "math/bits"

// draw gives an integer in [0, n) as a pure function of its arguments. Each counter is
// mixed in by a full round of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
// Number Generators, OOPSLA 2014, section 4); the high product (Lemire: Fast Random Integer
// Generation in an Interval, 2019, section 3) maps to the interval, with a bias below
// n/2^64.
func draw(seed, step, sequence, n uint64) uint64 {
	x := mix(seed)
	x = mix(x ^ step)
	x = mix(x ^ sequence)
	high, _ := bits.Mul64(x, n)
	return high
}

// mix is one splitmix64 output for state x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
