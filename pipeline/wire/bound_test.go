package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// bytesOf returns n elements of 0.5 with one other among them.
func bytesOf(n, at int, x float32) []byte {
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = 0.5
	}
	if at < n {
		xs[at] = x
	}
	return AppendF32(nil, xs)
}

// TestCheckElementsFindsEachPlace: whatever stands before and after an element, in the unrolled part and
// after it, it is refused from the limit on, with either sign, and the one below the limit is not.
func TestCheckElementsFindsEachPlace(t *testing.T) {
	const limit = 0x1p24
	below := math.Nextafter32(limit, 0)
	inf := float32(math.Inf(1))
	for n := 1; n <= 21; n++ {
		for at := range n {
			for _, x := range []float32{limit, inf, math.MaxFloat32, float32(math.NaN()), math.Float32frombits(0x7f800001)} {
				for _, signed := range []float32{x, -x} {
					b := bytesOf(n, at, signed)
					if err := CheckElements(b, limit); !errors.Is(err, ErrElement) || beyond(b, limit) != at {
						t.Fatalf("element %d of %d is %v: %v", at, n, signed, err)
					}
					if odd := append([]byte{0}, b...)[1:]; beyond(odd, limit) != at {
						t.Fatalf("element %d of %d at an odd address is %v", at, n, signed)
					}
				}
			}
			for _, x := range []float32{below, -below, 0, float32(math.Copysign(0, -1)), 1e-45} {
				if err := CheckElements(bytesOf(n, at, x), limit); err != nil {
					t.Fatalf("element %d of %d is %v: %v", at, n, x, err)
				}
			}
		}
	}
}

// FuzzBeyond compares the check with comparing one float after the other.
func FuzzBeyond(f *testing.F) {
	f.Add(bytesOf(9, 4, float32(math.NaN())), float32(3))
	f.Add(bytesOf(9, 8, 7), float32(7))
	f.Fuzz(func(t *testing.T, b []byte, limit float32) {
		if !(limit > 0) || math.IsInf(float64(limit), 0) {
			return
		}
		want := -1
		for i := 0; i+4 <= len(b) && want < 0; i += 4 {
			x := math.Abs(float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))))
			if !(x < float64(limit)) {
				want = i / 4
			}
		}
		if got := beyond(b, limit); got != want {
			t.Errorf("element %d, want %d", got, want)
		}
	})
}

// TestCheckInt8ElementsReadsScales: words with a scale that lets elements be too large, negative or not
// finite are refused, in any group.
func TestCheckInt8ElementsReadsScales(t *testing.T) {
	const n, limit = 300, 1000
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = float32(i) - 150
	}
	for group, at := range []int{0, 132, 264} {
		tensor, _ := AppendTensor(nil, Int8, xs, len(xs), 7)
		words, ok := Int8Words(tensor, n)
		if err := CheckInt8Elements(words, n, limit); err != nil || !ok {
			t.Fatalf("%v, %v", err, ok)
		}
		for _, scale := range []float64{math.NaN(), math.Inf(1), -1, 8, 1e38} {
			binary.LittleEndian.PutUint32(words[at:], math.Float32bits(float32(scale)))
			if err := CheckInt8Elements(words, n, limit); !errors.Is(err, ErrElement) {
				t.Errorf("group %d has scale %v: %v", group, scale, err)
			}
		}
	}
}

// BenchmarkCheckElements is the check of what crosses a boundary: a micro-batch of 4 sequences of 64 tokens
// in 64 channels, and of 1024 in 768 (GPT-2 124M), beside a copy of it.
func BenchmarkCheckElements(b *testing.B) {
	for name, n := range map[string]int{"nano": 4 * 64 * 64, "gpt2-124m": 4 * 1024 * 768} {
		elements := bytesOf(n, n, 0)
		to := make([]byte, len(elements))
		b.Run(name+"/check", func(b *testing.B) {
			b.SetBytes(int64(len(elements)))
			for b.Loop() {
				if CheckElements(elements, activationBound) != nil {
					b.Fatal("refused")
				}
			}
		})
		b.Run(name+"/copy", func(b *testing.B) {
			b.SetBytes(int64(len(elements)))
			for b.Loop() {
				copy(to, elements)
			}
		})
	}
}
