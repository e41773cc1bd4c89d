package conform

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pnode/kernels"
)

// CheckRepeats runs one case twice, each time on memory of its own, and wants the same bits.
func CheckRepeats(dev kernels.Device, q kernels.Queue, c Case) error {
	t := newTrial(c)
	first, err := t.results(dev, q)
	if err != nil {
		return fmt.Errorf("conform: %v: %w", c, err)
	}
	return t.repeat(dev, q, first)
}

// RunEqualScores runs an attention of float32 forward and backward whose scores are about 10^6, 10^7 and
// 10^8. Several keys are the same, so that each query divides its probability among those of the largest
// score; it wants gradients that are right.
func RunEqualScores(t *testing.T, dev kernels.Device) {
	for _, size := range []float64{1e6, 1e7, 1e8} {
		l := newEqualScores(size)
		out, dqkv := l.run(t, dev)
		if err := compareResults(out, l.out, 1e-5); err != nil {
			t.Errorf("scores about %g: out: %v", size, err)
		}
		for i, of := range []struct {
			what string
			size float64 // of the terms of its sums
		}{{"queries", size}, {"keys", 1}, {"values", 1}} {
			got, want := l.third(double(dqkv), i), l.third(l.dqkv, i)
			for k := range want {
				if diff := math.Abs(got[k] - want[k]); !(diff <= 1e-5*(of.size+math.Abs(want[k]))) {
					t.Errorf("scores about %g: gradient of %s: element %d is %v, want %v", size, of.what, k, got[k], want[k])
					break
				}
			}
		}
	}
}

// newEqualScores draws keys of four kinds, whose products with any query are far apart.
func newEqualScores(size float64) *largeScores {
	s := kernels.AttentionShape{B: 1, T: 300, H: 2, K: 1, D: 16}
	l := &largeScores{half: kernels.F32, shape: s, qkv: make([]float64, s.T*(s.H+2*s.K)*s.D), dout: make([]float64, s.T*s.H*s.D)}
	rng := rand.New(rand.NewPCG(5, uint64(size)))
	for i := range l.qkv {
		l.qkv[i] = rng.NormFloat64()
		switch row, head := i/s.D/(s.H+2*s.K), i/s.D%(s.H+2*s.K); {
		case head < s.H: // the first channels of a query choose among the kinds
			l.qkv[i] = float64((i*7 + row + head) % 5)
		case head == s.H:
			l.qkv[i] = 0
			if i%s.D == row%4 {
				l.qkv[i] = math.Round(size)
			}
		}
	}
	for i := range l.dout {
		l.dout[i] = rng.NormFloat64()
	}
	for _, x := range [][]float64{l.qkv, l.dout} {
		for i, v := range single(x) {
			x[i] = float64(v)
		}
	}
	l.solve()
	return l
}

// third returns the numbers of qkv that are of queries (0), keys (1) or values (2).
func (l *largeScores) third(qkv []float64, of int) (part []float64) {
	s := l.shape
	for i, v := range qkv {
		if head := i / s.D % (s.H + 2*s.K); of == max(0, (head-s.H)/s.K+1) && (head >= s.H || of == 0) {
			part = append(part, v)
		}
	}
	return part
}

func double(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
