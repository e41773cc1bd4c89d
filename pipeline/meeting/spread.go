package meeting

import (
	"errors"
	"fmt"
	"math"

	"pnode/planner/plan"
)

// Spread says how far apart the outer gradients of a round were, over some layers: as all replicas have them, which is as messages say. Sums are
// over the elements in a fixed order, in float64, where a product of two float32 numbers is exact; of large tensors over some of them, as many times as there are.
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

// Of a large tensor one group of sampleGroup elements in sampleEvery is looked at: all others would have to be decoded a second time, once their mean is known, which
// costs as much as the outer step itself. Of 3 million elements, drawn of 124 million, sums are right to some thousandths. Rows of matrices have a number of
// groups that is no multiple of sampleEvery, so that all columns have their turn. Tensors up to sampleWhole elements are looked at whole.
const (
	sampleGroup = 1 << 10 // a multiple of every codec's block
	sampleEvery = 37
	sampleWhole = 1 << 16
)

// sampled calls visit for the elements [first,end) of a tensor that are looked at, which are other ones in each round, and returns the share of the tensor
// that they are.
func (m *Meeting) sampled(t tensor, visit func(first, end int) error) (share float64, err error) {
	step, at := sampleEvery*sampleGroup, (int(m.from)+t.number)%sampleEvery*sampleGroup
	if t.len <= sampleWhole {
		step, at = sampleGroup, 0
	}
	seen := 0
	for first := at; first < t.len && err == nil; first += step {
		end := min(first+sampleGroup, t.len)
		seen, err = seen+end-first, visit(first, end)
	}
	return float64(seen) / float64(t.len), err
}

// note adds what a layer's messages say to the round's spread, once their mean is made.
func (m *Meeting) note(l *layer, weights, mean []float32) error {
	if m.spread.Squares == nil {
		m.spread.Squares, m.spread.Dots = make([]float64, len(weights)), make([]float64, len(weights))
	}
	parts := m.cfg.Codec.Block() > 0
	if !parts {
		clear(m.decoded[:l.len])
	}
	from := 0 // byte of the messages
	for _, t := range l.tensors {
		mean, one, to := mean[t.first:][:t.len], m.decoded[t.first:][:t.len], from+m.cfg.Codec.Bytes(t.len)
		var sum float64
		share, err := m.sampled(t, func(first, end int) error {
			square, _ := products(mean[first:end], mean[first:end])
			sum += square
			return nil
		})
		m.spread.Mean += sum / share
		for r, weight := range weights {
			if weight == 0 || err != nil {
				continue
			}
			message := l.messages[r][from:to]
			if !parts {
				err = m.decode(one, 1, message)
			}
			var sum, dots float64
			_, failed := m.sampled(t, func(first, end int) error {
				if parts {
					clear(one[first:end])
					if err := m.decode(one[first:end], 1, message[m.cfg.Codec.Bytes(first):m.cfg.Codec.Bytes(end)]); err != nil {
						return err
					}
				}
				square, dot := products(one[first:end], mean[first:end])
				sum, dots = sum+square, dots+dot
				return nil
			})
			if !parts && err == nil {
				err = m.decode(one, -1, message) // 0 again
			}
			m.spread.Squares[r] += sum / share
			m.spread.Dots[r] += dots / share
			err = errors.Join(err, failed)
		}
		if err != nil {
			return fmt.Errorf("tensor %d: %w", t.number, err)
		}
		from = to
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
