package meeting

import (
	"math"

	"pnode/planner/plan"
)

// Spread says how far apart the outer gradients of a round were, over some layers: as all replicas have them, which is as messages say. Sums are
// over the elements in a fixed order, in float64, where a product of two float32 numbers is exact.
type Spread struct {
	// Mean is the squared norm of the mean that the outer step took.
	Mean float64 `json:"mean"`
	// Squares has by replica the squared norm of its outer gradient, Dots its inner product with the mean; 0 where a replica did not count.
	Squares []float64 `json:"squares"`
	Dots    []float64 `json:"dots"`
}

// Add adds the sums of other layers.
func (s *Spread) Add(other Spread) {
	s.Mean += other.Mean
	if len(s.Squares) < len(other.Squares) {
		s.Squares = append(s.Squares, make([]float64, len(other.Squares)-len(s.Squares))...)
		s.Dots = append(s.Dots, make([]float64, len(other.Squares)-len(s.Dots))...)
	}
	for r := range other.Squares {
		s.Squares[r] += other.Squares[r]
		s.Dots[r] += other.Dots[r]
	}
}

// Norm returns the norm of a replica's outer gradient: how far its inner steps went.
func (s Spread) Norm(r plan.Replica) float64 { return math.Sqrt(s.Squares[r]) }

// Cosine returns the cosine of the angle between a replica's outer gradient and the mean of the others', where the replica has a share of the
// whole mean: of two replicas, that between their outer gradients (DiLoCo, arXiv 2311.08105, section 3, "cosine similarity between outer
// gradients"). It is 0 where one of them is nothing.
func (s Spread) Cosine(r plan.Replica, share float64) float64 {
	rest := s.Mean - 2*share*s.Dots[r] + share*share*s.Squares[r] // squared norm of what the others have in the mean
	if !(s.Squares[r] > 0 && rest > 0) {
		return 0
	}
	return max(-1, min(1, (s.Dots[r]-share*s.Squares[r])/math.Sqrt(s.Squares[r]*rest)))
}

// Drift returns how far the outer gradients were from their mean, as a part of its norm: the root of their weighed mean squared distance. It is
// 0 where all replicas learned the same, and 1 where what they have in common is as large as what they do not. Its square is the gradient
// diversity of Yin et al. (2018, arXiv 1706.05699) less 1.
func (s Spread) Drift(shares []float32) float64 {
	if s.Mean <= 0 {
		return 0
	}
	squares := 0.0
	for r, share := range shares {
		squares += float64(share) * s.Squares[r]
	}
	return math.Sqrt(max(0, squares/s.Mean-1))
}

// note adds what a layer's messages say to the round's spread, once their mean is made.
func (m *Meeting) note(l *layer, weights, mean []float32) error {
	if m.spread.Squares == nil {
		m.spread.Squares, m.spread.Dots = make([]float64, len(weights)), make([]float64, len(weights))
	}
	for _, t := range l.tensors {
		square, _ := products(mean[t.first:][:t.len], mean[t.first:][:t.len])
		m.spread.Mean += square
	}
	one := m.decoded[:l.len]
	for r, weight := range weights {
		if weight == 0 {
			continue
		}
		clear(one)
		if err := m.add(one, 1, l, l.messages[r]); err != nil {
			return err
		}
		square, dot := products(one, mean) // of one, 0 outside of the messages' tensors
		m.spread.Squares[r] += square
		m.spread.Dots[r] += dot
	}
	return nil
}

// products returns the inner products of a vector with itself and with another one. Four sums of each are under way, for speed: every fourth element is of
// the same one.
func products(one, other []float32) (square, dot float64) {
	other = other[:len(one)]
	var s, d [4]float64
	n := len(one) &^ 3
	for i := 0; i < n; i += 4 {
		a, b := one[i:i+4:i+4], other[i:i+4:i+4]
		s[0], d[0] = s[0]+float64(a[0])*float64(a[0]), d[0]+float64(a[0])*float64(b[0])
		s[1], d[1] = s[1]+float64(a[1])*float64(a[1]), d[1]+float64(a[1])*float64(b[1])
		s[2], d[2] = s[2]+float64(a[2])*float64(a[2]), d[2]+float64(a[2])*float64(b[2])
		s[3], d[3] = s[3]+float64(a[3])*float64(a[3]), d[3]+float64(a[3])*float64(b[3])
	}
	for i := n; i < len(one); i++ {
		s[0], d[0] = s[0]+float64(one[i])*float64(one[i]), d[0]+float64(one[i])*float64(other[i])
	}
	return s[0] + s[1] + s[2] + s[3], d[0] + d[1] + d[2] + d[3]
}

// Spread returns how far apart the outer gradients of the layers are that are merged in this round.
func (m *Meeting) Spread() Spread { return m.spread }
