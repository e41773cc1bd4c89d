package dataset

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPermutationIsABijection tries every n to 2000 (800 with -short) with several keys.
func TestPermutationIsABijection(t *testing.T) {
	most := uint64(2000)
	if testing.Short() {
		most = 800
	}
	for n := uint64(1); n <= most; n++ {
		for k := range uint64(3) {
			p := newPermutation(key(n, k), n)
			seen := make([]bool, n)
			for i := range n {
				j := p.at(i)
				if j >= n || seen[j] {
					t.Fatalf("n %d key %d: image %d of %d is out of range or was given before", n, k, j, i)
				}
				seen[j] = true
			}
		}
	}
}

// TestPermutationOfLargeDomains cannot try all; that the cipher can be undone on the whole
// of Z_a x Z_b proves that it is a bijection there, and walking keeps that.
func TestPermutationOfLargeDomains(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := r.Uint64()>>(2+r.IntN(50)) + 1
		p := newPermutation(r.Uint64(), n)
		if p.a*p.b < n || p.a*p.b-n >= p.a || p.a*p.a < n || p.a > 1 && (p.a-1)*(p.a-1) >= n {
			t.Fatalf("n %d: domain %d x %d", n, p.a, p.b)
		}
		for range 50 {
			i := r.Uint64N(p.a * p.b)
			if got := decrypt(p, p.encrypt(i)); got != i {
				t.Fatalf("n %d: %d becomes %d", n, i, got)
			}
			if j := p.at(r.Uint64N(n)); j >= n {
				t.Fatalf("n %d: image %d", n, j)
			}
		}
	}
}

// decrypt undoes encrypt.
func decrypt(p permutation, i uint64) uint64 {
	left, right := i%p.a, i/p.a
	for r := rounds - 2; r >= 0; r -= 2 {
		right = (right + p.b - below(mix(p.keys[r+1]^left), p.b)) % p.b
		left = (left + p.a - below(mix(p.keys[r]^right), p.a)) % p.a
	}
	return right*p.a + left
}

// TestPermutationShuffles counts over many keys where each of n elements goes: n*n cells
// of equal expectation, whose chi-square has (n-1)^2 degrees of freedom.
func TestPermutationShuffles(t *testing.T) {
	for _, n := range []uint64{2, 3, 5, 16, 21, 100} {
		const each = 400
		counts := make([][]int, n)
		for i := range counts {
			counts[i] = make([]int, n)
		}
		for k := range each * n {
			p := newPermutation(key(9, k), n)
			for i := range n {
				counts[i][p.at(i)]++
			}
		}
		chi := 0.0
		for _, row := range counts {
			for _, c := range row {
				chi += (float64(c) - each) * (float64(c) - each) / each
			}
		}
		free := float64(n-1) * float64(n-1)
		if z := (chi - free) / math.Sqrt(2*free); math.Abs(z) > 6 {
			t.Errorf("n %d: chi-square %.1f with %.0f degrees of freedom, %.1f deviations off", n, chi, free, z)
		}
	}
}

// TestPermutationLeavesNoOrder looks at neighbours of one large permutation: the distance of
// their images, as a share of n, has mean 1/3.
func TestPermutationLeavesNoOrder(t *testing.T) {
	const n = 100_000
	p := newPermutation(key(4), n)
	sum, fixed, before := 0.0, 0, p.at(0)
	for i := uint64(1); i < n; i++ {
		j := p.at(i)
		sum += math.Abs(float64(j)-float64(before)) / n
		before = j
		if i == j {
			fixed++
		}
	}
	if mean := sum / (n - 1); math.Abs(mean-1./3) > 0.01 {
		t.Errorf("neighbours are %.4f of the domain apart, want 0.3333", mean)
	}
	if fixed > 10 { // Poisson with mean 1
		t.Errorf("%d elements stay where they are", fixed)
	}
}

func FuzzPermutation(f *testing.F) {
	f.Add(uint64(1), uint64(1), uint64(0))
	f.Add(uint64(77), uint64(1)<<62, uint64(12345))
	f.Fuzz(func(t *testing.T, k, n, i uint64) {
		n = n%(1<<62) + 1
		i %= n
		p := newPermutation(k, n)
		j := p.at(i)
		if j >= n {
			t.Fatalf("image %d of %d, n %d", j, i, n)
		}
		back := decrypt(p, j)
		for back >= n {
			back = decrypt(p, back)
		}
		if back != i {
			t.Fatalf("%d -> %d -> %d, n %d", i, j, back, n)
		}
	})
}

func BenchmarkPermutation(b *testing.B) {
	p := newPermutation(1, 1_234_567_890)
	i := uint64(0)
	for b.Loop() {
		i = p.at(i)
	}
}
