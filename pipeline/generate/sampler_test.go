package generate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func sampler(t testing.TB, s Sampling) *Sampler {
	t.Helper()
	r, err := NewSampler(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// logitsOf are the logits of given probabilities.
func logitsOf(probabilities ...float64) []float32 {
	var l []float32
	for _, p := range probabilities {
		l = append(l, float32(math.Log(p)))
	}
	return l
}

// TestPickFollowsTheProbabilities draws often and compares shares with what is left of
// 0.1, 0.4, 0.2, 0.3.
func TestPickFollowsTheProbabilities(t *testing.T) {
	logits := logitsOf(0.1, 0.4, 0.2, 0.3)
	const draws = 40_000
	for _, test := range []struct {
		name     string
		sampling Sampling
		want     [4]float64
	}{
		{"all", Sampling{Temperature: 1}, [4]float64{0.1, 0.4, 0.2, 0.3}},
		{"top-k of more", Sampling{Temperature: 1, TopK: 9}, [4]float64{0.1, 0.4, 0.2, 0.3}},
		{"top-k", Sampling{Temperature: 1, TopK: 2}, [4]float64{0, 4. / 7, 0, 3. / 7}},
		{"top-p", Sampling{Temperature: 1, TopP: 0.85}, [4]float64{0, 4. / 9, 2. / 9, 3. / 9}},
		{"tiny top-p", Sampling{Temperature: 1, TopP: 1e-9}, [4]float64{0, 1, 0, 0}},
		{"top-p of what top-k leaves", Sampling{Temperature: 1, TopK: 3, TopP: 0.6}, [4]float64{0, 4. / 7, 0, 3. / 7}},
		{"warm", Sampling{Temperature: 0.5}, [4]float64{1. / 30, 16. / 30, 4. / 30, 9. / 30}},
		{"cold", Sampling{Temperature: 0.001}, [4]float64{0, 1, 0, 0}},
		{"greedy", Sampling{}, [4]float64{0, 1, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := sampler(t, test.sampling)
			var count [4]float64
			for range draws {
				count[s.Pick(logits)]++
			}
			for i, want := range test.want {
				// Six deviations of a binomial share.
				if got := count[i] / draws; math.Abs(got-want) > 6*math.Sqrt(want*(1-want)/draws) {
					t.Errorf("token %d has the share %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestPickRepeats(t *testing.T) {
	draw := func(seed uint64) []int32 {
		s := sampler(t, Sampling{Temperature: 1, TopK: 3, TopP: 0.9, Seed: seed})
		var tokens []int32
		for range 64 {
			tokens = append(tokens, s.Pick(logitsOf(0.2, 0.2, 0.3, 0.3)))
		}
		return tokens
	}
	if !slices.Equal(draw(5), draw(5)) || slices.Equal(draw(5), draw(6)) {
		t.Error("the seed does not decide the tokens")
	}
}

func TestPickOfStrangeLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, test := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{nan, 1, nan}, 1},
		{[]float32{0, inf, nan}, 1},
		{[]float32{-inf, -inf, 3}, 2},
		{[]float32{7}, 0},
	} {
		for _, s := range []Sampling{{}, {Temperature: 1}, {Temperature: 2, TopK: 2, TopP: 0.5}} {
			if got := sampler(t, s).Pick(test.logits); got != test.want {
				t.Errorf("%+v of %v picks %d, want %d", s, test.logits, got, test.want)
			}
		}
	}
	if got := sampler(t, Sampling{TopK: 1, Temperature: 1}).Pick([]float32{2, 5, 5}); got != 1 {
		t.Errorf("of equals token %d is taken, want the first", got)
	}
}

func TestSamplingIsChecked(t *testing.T) {
	for want, s := range map[string]Sampling{
		"temperature is -1": {Temperature: -1}, "temperature is NaN": {Temperature: math.NaN()},
		"top-k is -2": {TopK: -2}, "top-p is 1.5": {TopP: 1.5},
	} {
		if _, err := NewSampler(s); !errors.Is(err, ErrBadSampling) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func FuzzPick(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0xff}, 0.7, 2, 0.9, uint64(1))
	f.Fuzz(func(t *testing.T, raw []byte, temperature float64, k int, p float64, seed uint64) {
		s, err := NewSampler(Sampling{Temperature: temperature, TopK: k, TopP: p, Seed: seed})
		if err != nil || len(raw) == 0 {
			return
		}
		var logits []float32
		for i, b := range raw {
			logits = append(logits, math.Float32frombits(uint32(b)<<24|uint32(i)))
		}
		if got := s.Pick(logits); got < 0 || int(got) >= len(logits) {
			t.Errorf("token %d of %d", got, len(logits))
		}
	})
}
