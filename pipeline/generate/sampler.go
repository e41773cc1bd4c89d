package generate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// ErrBadSampling is wrapped by errors that name a field of Sampling and what is accepted.
var ErrBadSampling = errors.New("generate: bad sampling")

// Sampling says how a token is drawn. The zero value takes the most likely token.
type Sampling struct {
	// Temperature divides the logits; 0 takes the most likely token, of equals the first.
	Temperature float64
	// TopK draws among the K most likely tokens only; 0 is off.
	TopK int
	// TopP draws among the fewest most likely tokens that have at least this probability
	// together (nucleus sampling, Holtzman et al. 2020, section 3.1); 0 and 1 are off.
	// It applies to what TopK leaves.
	TopP float64
	Seed uint64
}

// Validate names the first field that does not fit, its value and what is accepted.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0 && s.Temperature <= 100):
		return fmt.Errorf("%w: --temperature is %v: want a value from 0 to 100", ErrBadSampling, s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("%w: --top-k is %d: want 0 for off, or more", ErrBadSampling, s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("%w: --top-p is %v: want a value from 0 to 1", ErrBadSampling, s.TopP)
	}
	return nil
}

// Sampler draws tokens one after the other. Same sampling, same logits: same tokens.
type Sampler struct {
	sampling Sampling
	random   *rand.Rand
	order    []int32   // tokens from the most likely on
	weights  []float64 // by token
}

// NewSampler starts the stream of the seed. The error wraps ErrBadSampling.
func NewSampler(s Sampling) (*Sampler, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{sampling: s, random: rand.New(rand.NewPCG(s.Seed, 0x73616d706c65))}, nil
}

// Pick draws a token for logits [V]; V at least 1. A logit that is no number has no
// chance.
func (s *Sampler) Pick(logits []float32) int32 {
	best := mostLikely(logits)
	if s.sampling.Temperature == 0 {
		return best
	}
	s.weigh(logits, logits[best])
	s.restrict()
	sum := 0.0
	for _, w := range s.weights {
		sum += w
	}
	at := s.random.Float64() * sum
	for i, w := range s.weights {
		if at -= w; at < 0 {
			return int32(i)
		}
	}
	return best
}

func mostLikely(logits []float32) int32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] || math.IsNaN(float64(logits[best])) {
			best = i
		}
	}
	return int32(best)
}

// weigh computes probabilities up to a factor: 1 for the most likely token.
func (s *Sampler) weigh(logits []float32, best float32) {
	s.weights = s.weights[:0]
	for _, l := range logits {
		w := math.Exp(float64(l-best) / s.sampling.Temperature)
		if l == best { // infinite ones have no difference
			w = 1
		} else if math.IsNaN(w) {
			w = 0
		}
		s.weights = append(s.weights, w)
	}
}

// restrict takes the chance from the tokens that top-k and top-p leave out.
func (s *Sampler) restrict() {
	k, p := s.sampling.TopK, s.sampling.TopP
	if k == 0 {
		k = len(s.weights)
	}
	if k >= len(s.weights) && (p == 0 || p == 1) {
		return
	}
	s.order = s.order[:0]
	for i := range s.weights {
		s.order = append(s.order, int32(i))
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.weights[b], s.weights[a]), cmp.Compare(a, b))
	})
	k = min(k, len(s.order))
	if p > 0 && p < 1 { // of the first k tokens those that have the share p of their probability
		total, sum := 0.0, 0.0
		for _, token := range s.order[:k] {
			total += s.weights[token]
		}
		for i, token := range s.order[:k] {
			if sum += s.weights[token]; sum >= p*total {
				k = i + 1
				break
			}
		}
	}
	for _, token := range s.order[k:] {
		s.weights[token] = 0
	}
}
