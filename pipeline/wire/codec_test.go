package wire

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/kernels/quant"
	"pnode/planner/plan"
)

// normal returns n elements spread like a normal distribution.
func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = float32(r.NormFloat64())
	}
	return xs
}

func decoded(t testing.TB, b []byte, n int) []float32 {
	t.Helper()
	xs := make([]float32, n)
	if _, err := DecodeTensor(xs, max(1, n), b); err != nil {
		t.Fatal(err)
	}
	return xs
}

// measured is the relative error of got, summed the slow way.
func measured(got, want []float32) float64 {
	var wrong, all float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		wrong, all = wrong+d*d, all+float64(want[i])*float64(want[i])
	}
	return math.Sqrt(wrong / all)
}

func TestCodecsStateTheirError(t *testing.T) {
	bounds := map[Codec]float64{F32: 0, BF16: 0.002, Int8: 0.01, Int4: 0.19}
	for c := F32; c <= Int4; c++ {
		for _, n := range []int{0, 1, 3, 127, 128, 129, 100_000} {
			xs := normal(n, uint64(n))
			b, e := AppendTensor([]byte{7}, c, xs, max(1, len(xs)), NoiseOf(3, Crossing{Step: 1}))
			if b[0] != 7 || len(b)-1 != TensorBytes(c, n, n) || e.Codec != c || e.Refused != 0 {
				t.Fatalf("%v of %d elements: %d bytes, %+v", c, n, len(b)-1, e)
			}
			got := decoded(t, b[1:], n)
			if n == 0 {
				continue
			}
			want, slack := measured(got, xs), 1e-5
			if c == Int4 {
				slack = 1e-4
				if filled := (32 - n%32) % 32; filled > 0 { // errors where a tile was filled up count, and nobody reads them
					slack = float64(filled) / float64(min(n, 32))
				}
			}
			if math.Abs(e.RelError-want) > slack*want+1e-6 {
				t.Errorf("%v of %d elements: error %g is told, %g is found", c, n, e.RelError, want)
			}
			if n == 100_000 && e.RelError > bounds[c] {
				t.Errorf("%v: relative error %g, want at most %g", c, e.RelError, bounds[c])
			}
		}
	}
}

// TestStochasticRoundingIsUnbiased: an element between two steps comes out right on average.
func TestStochasticRoundingIsUnbiased(t *testing.T) {
	xs := make([]float32, GroupElements)
	for i := range xs {
		xs[i] = float32(i%20)/10 - 0.95 // a step is 1/127
	}
	xs[0] = 1
	sum := make([]float64, len(xs))
	const rounds = 4000
	for r := range rounds {
		b, e := AppendTensor(nil, Int8, xs, max(1, len(xs)), NoiseOf(1, Crossing{Micro: 5, Layer: r}))
		if e.Codec != Int8 {
			t.Fatalf("fell back: %+v", e)
		}
		for i, x := range decoded(t, b, len(xs)) {
			sum[i] += float64(x)
		}
	}
	for i, x := range xs {
		// A step's deviation is at most 1/2; 6 deviations of the mean of 4000.
		if mean := sum[i] / rounds; math.Abs(mean-float64(x)) > 6*0.5/127/math.Sqrt(rounds) {
			t.Errorf("element %d is %v on average, want %v", i, mean, x)
		}
	}
}

func TestNoiseNamesTheCrossing(t *testing.T) {
	seen := map[Noise]Crossing{}
	for step := range 8 {
		for micro := range 8 {
			for layer := range 8 {
				for _, back := range []bool{false, true} {
					c := Crossing{Step: plan.Step(step), Micro: plan.Micro(micro), Layer: layer, Back: back}
					n := NoiseOf(9, c)
					if other, twice := seen[n]; twice {
						t.Fatalf("%+v and %+v have one key", c, other)
					}
					seen[n] = c
				}
			}
		}
	}
	xs := normal(1000, 5)
	one, _ := AppendTensor(nil, Int8, xs, max(1, len(xs)), NoiseOf(9, Crossing{Step: 1}))
	same, _ := AppendTensor(nil, Int8, xs, max(1, len(xs)), NoiseOf(9, Crossing{Step: 1}))
	other, _ := AppendTensor(nil, Int8, xs, max(1, len(xs)), NoiseOf(9, Crossing{Step: 1, Back: true}))
	if !bytes.Equal(one, same) || bytes.Equal(one, other) {
		t.Error("the noise is not a function of the crossing")
	}
}

// TestInt8IsToldFromItsSums as AppendTensor finds it, but for errors next to the bound.
func TestInt8IsToldFromItsSums(t *testing.T) {
	noise := NoiseOf(1, Crossing{Step: 2})
	fits, refused, open := 0, 0, 0
	for outlier := float32(4); outlier < 90; outlier *= 1.02 {
		xs := normal(1000, 7)
		for i := range xs {
			if i%GroupElements == 0 {
				xs[i] *= outlier
			}
		}
		words := make([]byte, quant.Bytes(len(xs)))
		var steps []float32
		for at := 0; at < len(xs); at += GroupElements {
			b := words[quant.Bytes(at):]
			wrong, all := quant.Pack(b, xs[at:min(len(xs), at+GroupElements)], uint64(noise), uint64(at)/4)
			w, a := quant.InSteps(b, wrong, all)
			steps = append(steps, w, a)
		}
		want, found := AppendTensor(nil, Int8, xs, max(1, len(xs)), noise)
		switch told := CheckInt8(words, steps); {
		case told.Codec == Int8:
			fits++
			if found.Codec != Int8 || !bytes.Equal(words, want[tensorFront:]) {
				t.Errorf("outliers of %v: told %+v, found %+v", outlier, told, found)
			}
		case told.Refused > 0:
			refused++
			if got, e := AppendRefused(nil, Int8, told.Refused, xs, len(xs), noise); found.Refused == 0 || e.Codec != found.Codec || !bytes.Equal(got, want) {
				t.Errorf("outliers of %v: told %+v, found %+v", outlier, told, found)
			}
		default:
			open++
		}
	}
	if fits == 0 || refused == 0 || open > 3 {
		t.Errorf("%d tensors fit, %d are refused, of %d nothing is told", fits, refused, open)
	}
}

// TestInt8IsPinned: these bytes are what other machines and later versions have to write.
func TestInt8IsPinned(t *testing.T) {
	xs := []float32{1, -1, 0.5, -0.25, 0.1, 0, 0.003, -0.003}
	b, e := AppendTensor(nil, Int8, xs, max(1, len(xs)), NoiseOf(42, Crossing{Step: 3, Micro: 2, Layer: 1, Back: true}))
	want := []byte{3, 0, 0, 0, 0x04, 0x02, 0x01, 0x3c, 0x7f, 0x81, 0x40, 0xe0, 0x0c, 0, 0, 0}
	if !bytes.Equal(b, want) || e.Codec != Int8 {
		t.Errorf("got % x, %+v, want % x", b, e, want)
	}
}

func TestFallback(t *testing.T) {
	tiny := make([]float32, 300)
	for i := range tiny {
		tiny[i] = math.SmallestNonzeroFloat32
	}
	broken := normal(300, 4)
	broken[200] = float32(math.Inf(1))
	spread := normal(64*GroupElements, 6) // every group has one element that outweighs the rest by half
	for i := range spread {
		if i%GroupElements == 0 {
			spread[i] = 40
		}
	}
	for name, tt := range map[string]struct {
		ask  Codec
		xs   []float32
		want Codec
	}{
		"normal":         {Int8, normal(1000, 1), Int8},
		"zeros":          {Int8, make([]float32, 200), Int8},
		"outweighed":     {Int8, spread, BF16},
		"subnormal":      {Int8, tiny, F32},
		"not finite":     {Int8, broken, F32},
		"bf16, infinite": {BF16, broken, F32},
	} {
		b, e := AppendTensor(nil, tt.ask, tt.xs, max(1, len(tt.xs)), 1)
		if e.Codec != tt.want || (e.Codec != tt.ask) != (e.Refused != 0) {
			t.Errorf("%s: %+v, want %v", name, e, tt.want)
		}
		got := decoded(t, b, len(tt.xs))
		for i := range got {
			if tt.want == F32 && math.Float32bits(got[i]) != math.Float32bits(tt.xs[i]) {
				t.Fatalf("%s: element %d is %v, want %v", name, i, got[i], tt.xs[i])
			}
		}
	}
}

func TestBF16Rounding(t *testing.T) {
	for in, want := range map[uint32]uint32{
		0x3f808000: 0x3f800000, 0x3f818000: 0x3f820000, 0x3f808001: 0x3f810000, // ties to even, above a tie
		0x7f7fffff: 0x7f800000, 0x80000000: 0x80000000, 0xff800000: 0xff800000,
		0x7f800001: 0x7fc00000,
	} {
		if got := NearestBF16(in); got != want {
			t.Errorf("%#08x becomes %#08x, want %#08x", in, got, want)
		}
	}
}

func TestDecodeTensorRefusals(t *testing.T) {
	good, _ := AppendTensor(nil, Int8, normal(10, 1), 10, 0)
	for name, tt := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":    {nil, ErrLength},
		"codec":    {append([]byte{byte(Int4 + 1)}, good[1:]...), ErrValue},
		"none":     {append([]byte{0}, good[1:]...), ErrValue},
		"reserved": {append([]byte{3, 1}, good[2:]...), ErrValue},
		"cut":      {good[:len(good)-1], ErrLength},
		"trailing": {append(bytes.Clone(good), 0), ErrLength},
		"other":    {append([]byte{2}, good[1:]...), ErrLength},
	} {
		if _, err := DecodeTensor(make([]float32, 10), 10, tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if _, err := ParseCodec("fp4"); err == nil {
		t.Error("fp4 is known")
	}
	for c := F32; c <= Int4; c++ {
		if got, err := ParseCodec(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
}

func TestF32TensorWithoutCopying(t *testing.T) {
	xs := normal(5, 1)
	tensor, elements := NewF32Tensor(len(xs))
	copy(elements, AppendF32(nil, xs))
	if want, _ := AppendTensor(nil, F32, xs, max(1, len(xs)), 0); !bytes.Equal(tensor, want) {
		t.Errorf("got %x, want %x", tensor, want)
	}
	if got, ok := F32Elements(tensor, 5); !ok || !bytes.Equal(got, elements) {
		t.Errorf("got %x, %t", got, ok)
	}
	half, _ := AppendTensor(nil, BF16, xs, max(1, len(xs)), 0)
	for name, b := range map[string][]byte{"another codec": half, "cut": tensor[:len(tensor)-1], "empty": nil, "reserved": append([]byte{1, 1, 0, 0}, elements...)} {
		if _, ok := F32Elements(b, 5); ok {
			t.Errorf("%s passes", name)
		}
	}
}

// TestTokensTellNothingOfTheNext: what is read of a token stays as it is whatever comes after it, or a model learns to look ahead.
func TestTokensTellNothingOfTheNext(t *testing.T) {
	const tokens = 5
	for c := F32; c <= Int4; c++ {
		for _, n := range []int{1, 31, 32, 100, 128, 192, 224, 256, 300, 1000} {
			xs, noise := normal(tokens*n, uint64(n)), NoiseOf(3, Crossing{Step: 1})
			read := func() []float32 {
				b, e := AppendActivation(nil, c, xs, n, noise)
				if e.Codec != c || len(b) != TensorBytes(c, len(xs), n) {
					t.Fatalf("%v of %d elements: %d bytes, %+v", c, n, len(b), e)
				}
				got := make([]float32, len(xs))
				if _, err := DecodeTensor(got, n, b); err != nil {
					t.Fatal(err)
				}
				return got
			}
			before := read()
			for token := tokens - 1; token > 0; token-- {
				for i := range xs[token*n:] {
					xs[token*n+i] *= 3
				}
				if got := read(); !slices.Equal(got[:token*n], before[:token*n]) {
					t.Errorf("%v of %d elements a token: tokens before %d are read otherwise as those after change", c, n, token)
				}
			}
		}
	}
}

func FuzzDecodeTensor(f *testing.F) {
	for c := F32; c <= Int4; c++ {
		b, _ := AppendTensor(nil, c, normal(5, 1), 5, 0)
		f.Add(b, 5)
	}
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		xs, token := make([]float32, max(0, n%1000)), max(1, n/1000%400)
		c, err := DecodeTensor(xs, token, b)
		if err == nil && len(b) != TensorBytes(c, len(xs), token) {
			t.Fatalf("%d bytes are %d elements in %v", len(b), len(xs), c)
		}
	})
}

func FuzzAppendTensor(f *testing.F) {
	f.Add(AppendF32(nil, normal(200, 1)), uint8(Int8))
	f.Add(AppendF32(nil, normal(300, 1)), uint8(Int4-F32))
	f.Add(AppendF32(nil, []float32{1, float32(math.NaN()), math.SmallestNonzeroFloat32}), uint8(BF16))
	f.Fuzz(func(t *testing.T, b []byte, codec uint8) {
		c, xs := F32+Codec(codec%4), make([]float32, len(b)/4)
		if err := DecodeF32(xs, b[:4*len(xs)]); err != nil {
			t.Fatal(err)
		}
		out, e := AppendTensor(nil, c, xs, max(1, len(xs)), Noise(len(b)))
		if len(out) != TensorBytes(e.Codec, len(xs), len(xs)) || e.Codec > c {
			t.Fatalf("%d bytes, %+v", len(out), e)
		}
		got := decoded(t, out, len(xs))
		for i, x := range got {
			if e.Codec != F32 && math.IsNaN(float64(x)) {
				t.Fatalf("element %d of %v is %v, was %v", i, e.Codec, x, xs[i])
			}
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	xs := normal(1<<20, 1)
	room, back := make([]byte, 0, 5<<20), make([]float32, len(xs))
	for c := F32; c <= Int4; c++ {
		b.Run("append/"+c.String(), func(b *testing.B) {
			b.SetBytes(4 << 20)
			for b.Loop() {
				room, _ = AppendTensor(room[:0], c, xs, 512, 1)
			}
		})
		b.Run("decode/"+c.String(), func(b *testing.B) {
			room, _ = AppendTensor(room[:0], c, xs, 512, 1)
			b.SetBytes(4 << 20)
			for b.Loop() {
				if _, err := DecodeTensor(back, 512, room); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(4 << 20)
		for b.Loop() {
			copy(back, xs)
		}
	})
}
