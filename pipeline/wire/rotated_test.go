package wire

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"math/bits"
	"testing"

	"pnode/kernels/quant"
)

// tileBytes is the size of the largest tile, mostSum what its integers come to at most, multiplied by H.
const (
	tileBytes = quant.ScaleBytes + tileElements/2
	mostSum   = tileElements * mostStep
)

// naive returns a tile's elements, with their signs, multiplied by the Hadamard matrix: element (i,j) is -1 where i and j have an odd number of
// ones in common.
func naive(xs []float32, size int) []float64 {
	products := make([]float64, size)
	for i := range products {
		for j, x := range xs {
			sign := quant.Number(0, uint64(j/64)) >> (j % 64) & 1
			if (uint64(bits.OnesCount(uint(i&j)))+sign)%2 == 1 {
				x = -x
			}
			products[i] += float64(x)
		}
	}
	return products
}

func TestRotationAgainstTheMatrix(t *testing.T) {
	for _, n := range []int{1, 32, 64, 150, tileElements} {
		xs := normal(n, uint64(n))
		var room tileRoom
		got := room.next(n)
		xs = xs[:min(n, len(got))]
		got.load(xs)
		for i, want := range naive(xs, len(got)) {
			if math.Abs(float64(got[i])-want) > 1e-4 {
				t.Fatalf("product %d of %d elements is %v, want %v", i, n, got[i], want)
			}
		}
		got.rotate()
		got.flip()
		for i, x := range xs {
			if math.Abs(float64(got[i]/float32(len(got))-x)) > 1e-5 {
				t.Fatalf("element %d of %d is %v after both ways, was %v", i, n, got[i]/float32(len(got)), x)
			}
		}
	}
}

// TestInt4IsPinned: these bytes are what other machines and later versions have to write.
func TestInt4IsPinned(t *testing.T) {
	xs := make([]float32, 300)
	for i := range xs {
		xs[i] = float32(int16(quant.Number(5, uint64(i)))) / (1 << 15)
	}
	noise := NoiseOf(42, Crossing{Step: 3, Micro: 2, Layer: 1, Back: true})
	gradient, _ := AppendTensor(nil, Int4, xs, len(xs), noise)
	activation, _ := AppendActivation(nil, Int4, xs, len(xs), noise)
	for name, tt := range map[string]struct {
		got   []byte
		sum   uint32
		first []byte
	}{
		"gradient":   {gradient, 0x33694a3e, []byte{4, 0, 0, 0, 0x00, 0xb7, 0x69, 0x3c, 0x3d, 0x0d}},
		"activation": {activation, 0xf17326c3, []byte{4, 0, 0, 0, 0x00, 0xb7, 0x69, 0x3c, 0x4c, 0x0d}},
	} {
		if sum := crc32.ChecksumIEEE(tt.got); sum != tt.sum || !bytes.HasPrefix(tt.got, tt.first) || len(tt.got) != tensorFront+tileBytes+2*(quant.ScaleBytes+16) {
			t.Errorf("%s: checksum %#x of % x, want %#x and % x first", name, sum, tt.got[:16], tt.sum, tt.first)
		}
	}
}

// TestInt4IsUnbiased on the gradient's leg, and has the lesser error on the other one.
func TestInt4IsUnbiased(t *testing.T) {
	xs := normal(tileElements, 3)
	sum := make([]float64, len(xs))
	const rounds = 4000
	for r := range rounds {
		b, e := AppendTensor(nil, Int4, xs, len(xs), NoiseOf(1, Crossing{Micro: 5, Layer: r}))
		if e.Codec != Int4 {
			t.Fatalf("fell back: %+v", e)
		}
		for i, x := range decoded(t, b, len(xs)) {
			sum[i] += float64(x)
		}
	}
	for i, x := range xs {
		// An element's error has a deviation of about 0.18; 6 deviations of the mean of 4000.
		if mean := sum[i] / rounds; math.Abs(mean-float64(x)) > 6*0.18/math.Sqrt(rounds) {
			t.Errorf("element %d is %v on average, want %v", i, mean, x)
		}
	}
	xs = normal(100_000, 4)
	_, chance := AppendTensor(nil, Int4, xs, len(xs), 1)
	nearest, e := AppendActivation(nil, Int4, xs, len(xs), 1)
	if again, _ := AppendActivation(nil, Int4, xs, len(xs), 2); e.RelError > 0.8*chance.RelError || !bytes.Equal(again, nearest) {
		t.Errorf("to the nearest %v, by chance %v", e.RelError, chance.RelError)
	}
}

// TestInt4SpreadsOutliers takes what Int8 refuses, and refuses what rotates into one large product, and what others would refuse.
func TestInt4SpreadsOutliers(t *testing.T) {
	outliers := normal(64*tileElements, 6)
	for i := range outliers {
		if i%GroupElements == 0 {
			outliers[i] = 40
		}
	}
	if _, e := AppendActivation(nil, Int4, outliers, tileElements, 1); e.Codec != Int4 || e.RelError > 0.15 {
		t.Errorf("outliers: %+v", e)
	}
	row := make(tile, tileElements)
	row[7] = 1 // a row of the matrix, which rotates back into one product
	row.rotate()
	row.flip()
	for i, x := range normal(tileElements, 8) {
		row[i] += x
	}
	if _, e := AppendActivation(nil, Int4, row, tileElements, 1); e.Codec != Int8 || e.Refused < 0.25 {
		t.Errorf("a row of the matrix: %+v", e)
	}
	large := normal(tileElements, 9)
	for i := range large {
		large[i] *= 10
	}
	if _, e := AppendActivation(nil, Int4, large, tileElements, 1); e.Codec != Int4 {
		t.Errorf("activations of 10: %+v", e)
	}
	if _, e := AppendTensor(nil, Int4, large, tileElements, 1); e.Codec != Int8 || !math.IsNaN(e.Refused) {
		t.Errorf("gradients of 10: %+v", e)
	}
	for i := range large {
		large[i] *= 1 << 20
	}
	if _, e := AppendActivation(nil, Int4, large, tileElements, 1); e.Codec != Int8 || !math.IsNaN(e.Refused) {
		t.Errorf("activations of 10 million: %+v", e)
	}
}

// TestInt4StaysWithinLimits: what is read of a tensor that is written stays below the lowest limit of receivers, though single elements come out larger.
func TestInt4StaysWithinLimits(t *testing.T) {
	for scale := float32(1); scale < 1<<26; scale *= 1.3 {
		xs := normal(tileElements, uint64(scale))
		for i := range xs {
			xs[i] *= scale
		}
		activations, _ := AppendActivation(nil, Int4, xs, len(xs), 1)
		gradients, _ := AppendTensor(nil, Int4, xs, len(xs), 1)
		for limit, b := range map[float64][]byte{activationBound: activations, gradientBound / (1 << GradientGrowth): gradients} {
			if Codec(b[0]) != Int4 {
				continue
			}
			for i, x := range decoded(t, b, len(xs)) {
				if math.Abs(float64(x)) >= limit {
					t.Fatalf("element %d of magnitudes around %v is %v", i, scale, x)
				}
			}
		}
	}
}

// TestInt4StaysBelowTheBound, whatever the integers of a tile are.
func TestInt4StaysBelowTheBound(t *testing.T) {
	b := make([]byte, tensorFront+tileBytes)
	b[0] = byte(Int4)
	for i := range tileElements / 2 {
		b[tensorFront+quant.ScaleBytes+i] = 0x77
	}
	put := func(scale float32) {
		bits := math.Float32bits(scale)
		copy(b[tensorFront:], []byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	xs := make([]float32, tileElements)
	put(activationBound / mostSum * 0.999)
	if _, err := DecodeTensor(xs, len(xs), b); err != nil {
		t.Error(err)
	}
	for i, x := range xs {
		if math.Abs(float64(x)) >= activationBound {
			t.Errorf("element %d is %v", i, x)
		}
	}
	for _, scale := range []float32{activationBound / mostSum, -1, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1))} {
		put(scale)
		if _, err := DecodeTensor(xs, len(xs), b); !errors.Is(err, ErrElement) {
			t.Errorf("a scale of %v: %v", scale, err)
		}
	}
	put(1)
	b[tensorFront+quant.ScaleBytes+9] = 0x18
	if _, err := DecodeTensor(xs, len(xs), b); !errors.Is(err, ErrValue) {
		t.Errorf("an integer of -8: %v", err)
	}
}
