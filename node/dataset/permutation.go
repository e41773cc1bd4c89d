package dataset

import (
	"math/bits"
	"sort"
)

// rounds of the Feistel network; more than the four after which Luby and Rackoff's bound
// holds, because domains can be small.
const rounds = 8

// permutation is a keyed bijection of [0, n): the generalized Feistel cipher on
// Z_a x Z_b, with a*b a little over n, and cycle walking for what falls outside (Black,
// Rogaway: Ciphers with Arbitrary Finite Domains, CT-RSA 2002, sections 4 and 5). It is a
// shuffle, not a secret: the round function is splitmix64's mixer.
type permutation struct {
	n, a, b uint64
	keys    [rounds]uint64
}

// newPermutation makes the bijection of [0, n) for a key; n is 1 to 2^62.
func newPermutation(key, n uint64) permutation {
	a := uint64(1) + uint64(sort.Search(1<<31-1, func(i int) bool { return (uint64(i)+1)*(uint64(i)+1) >= n })) // least with a*a >= n
	p := permutation{n: n, a: a, b: (n + a - 1) / a}
	for i := range p.keys {
		p.keys[i] = mix(key + uint64(i)*golden)
	}
	return p
}

// at returns the image of i, which must be below n. The walk ends: it follows the cycle of a
// bijection of [0, a*b) that i lies on. Since a*b < n + a it takes few rounds.
func (p permutation) at(i uint64) uint64 {
	for {
		i = p.encrypt(i)
		if i < p.n {
			return i
		}
	}
}

func (p permutation) encrypt(i uint64) uint64 {
	left, right := i%p.a, i/p.a
	for r := 0; r < rounds; r += 2 {
		left = (left + below(mix(p.keys[r]^right), p.a)) % p.a
		right = (right + below(mix(p.keys[r+1]^left), p.b)) % p.b
	}
	return right*p.a + left
}

// golden is 2^64 over the golden ratio, the step of splitmix64.
const golden = 0x9e3779b97f4a7c15

// mix is one splitmix64 output for state x (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014, section 4).
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below maps x to [0, n) by the high product (Lemire: Fast Random Integer Generation in an
// Interval, 2019, section 3), with a bias below n/2^64.
func below(x, n uint64) uint64 {
	high, _ := bits.Mul64(x, n)
	return high
}

// key mixes counters into one key, each by a full round.
func key(counters ...uint64) uint64 {
	x := uint64(0)
	for _, c := range counters {
		x = mix(x ^ c)
	}
	return x
}
