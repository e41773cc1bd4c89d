package compress

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

const limit = 0x1p42

// normal returns n elements spread like a normal distribution.
func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = float32(r.NormFloat64())
	}
	return xs
}

// written returns a tensor's first message, and what it lacks.
func written(t testing.TB, c Codec, xs []float32) (b []byte, missed []float32) {
	t.Helper()
	missed = make([]float32, len(xs))
	b, err := c.Append(nil, missed, xs, limit, Place{Step: 3, Replica: 1}.Noise(7))
	if err != nil {
		t.Fatal(err)
	}
	return b, missed
}

func read(t testing.TB, c Codec, b []byte, n int) []float32 {
	t.Helper()
	xs := make([]float32, n)
	if err := c.Add(xs, 1, b, wire.RoundedUp(limit)); err != nil {
		t.Fatal(err)
	}
	return xs
}

// TestMessagesAndWhatTheyLack add up to the tensor, within a rounding of float32, at every size; and the error of what
// is sent is as small as the codec's bits let it be.
func TestMessagesAndWhatTheyLack(t *testing.T) {
	worst := map[Codec]float64{F32: 0, BF16: 0.002, Int8: 0.01, Int4: 0.11, TopK: 0.95}
	for c := F32; c < codecEnd; c++ {
		for _, n := range []int{0, 1, 2, 63, 64, 65, 127, 129, 191, 4095, 4096, 4097, 4096 + 129, 50_000} {
			xs := normal(n, uint64(n))
			b, missed := written(t, c, xs)
			if len(b) != c.Bytes(n) {
				t.Fatalf("%v of %d elements: %d bytes, want %d", c, n, len(b), c.Bytes(n))
			}
			var wrong, all float64
			for i, got := range read(t, c, b, n) {
				if lost := math.Abs(float64(got) + float64(missed[i]) - float64(xs[i])); lost > 0x1p-22*math.Abs(float64(xs[i]))+0x1p-22*math.Abs(float64(got)) {
					t.Fatalf("%v of %d elements: %v was written as %v and lacks %v", c, n, xs[i], got, missed[i])
				}
				wrong, all = wrong+float64(missed[i])*float64(missed[i]), all+float64(xs[i])*float64(xs[i])
			}
			if e := math.Sqrt(wrong / all); n > 4096 && e > worst[c] {
				t.Errorf("%v of %d elements: relative error %.4f, want at most %v", c, n, e, worst[c])
			}
		}
	}
}

// TestBitsAnElement compares sizes of tensors of whole blocks with what the codecs say.
func TestBitsAnElement(t *testing.T) {
	const n = 768 * 768
	for c, want := range map[Codec]float64{F32: 32, BF16: 16, Int8: 8.25, Int4: 4.25, TopK: 0.219} {
		if got := 8 * float64(c.Bytes(n)) / n; math.Abs(got-want) > 0.001 {
			t.Errorf("%v has %.4f bits an element, want %v", c, got, want)
		}
	}
}

// TestNothingIsLostForGood sends a constant gradient again and again: what arrives is as much as what was given, but for
// what the last message lacks. SparseLoCo forgets on purpose, and is left out.
func TestNothingIsLostForGood(t *testing.T) {
	const n, rounds = 300, 200
	grad := normal(n, 5)
	for c := F32; c < TopK; c++ {
		sum, missed := make([]float64, n), make([]float32, n)
		for round := range rounds {
			b, err := c.Append(nil, missed, grad, limit, wire.Noise(round))
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range read(t, c, b, n) {
				sum[i] += float64(x)
			}
		}
		for i := range sum {
			if want := float64(grad[i]); math.Abs(sum[i]/rounds-want) > 0.01 {
				t.Fatalf("%v: %v arrives on average, want %v", c, sum[i]/rounds, want)
			}
		}
	}
}

// TestBlocksReadAlone: elements from a block on are those bytes of the message that Bytes names.
func TestBlocksReadAlone(t *testing.T) {
	const n = 1000
	for c := F32; c < TopK; c++ {
		b, _ := written(t, c, normal(n, 8))
		whole := read(t, c, b, n)
		for first := 0; first < n; first += 3 * c.Block() {
			end := min(n, first+2*c.Block())
			if part := read(t, c, b[c.Bytes(first):c.Bytes(end)], end-first); !slices.Equal(part, whole[first:end]) {
				t.Fatalf("%v: elements %d to %d alone differ", c, first, end)
			}
		}
	}
	if TopK.Block() != 0 {
		t.Error("a tensor in TopK is written as a whole")
	}
}

// TestWeightsMultiply: a sum has weight times the elements, after what it had.
func TestWeightsMultiply(t *testing.T) {
	for c := F32; c < codecEnd; c++ {
		b, _ := written(t, c, normal(100, 9))
		sum, once := normal(100, 10), read(t, c, b, 100)
		want := slices.Clone(sum)
		for i, x := range once {
			want[i] += float32(0.3 * x)
		}
		if err := c.Add(sum, 0.3, b, wire.RoundedUp(limit)); err != nil || !slices.Equal(sum, want) {
			t.Errorf("%v: %v, got %v, want %v", c, err, sum[:3], want[:3])
		}
	}
}

// TestBytesArePinned: what other machines and later versions have to write.
func TestBytesArePinned(t *testing.T) {
	xs := []float32{1, -1, 0.5, -0.25, 0.1, 0, 0.003}
	sparse := make([]float32, 130) // keeps 3
	sparse[7], sparse[64], sparse[100], sparse[129] = 4, -3, 0.5, 5
	for _, tt := range []struct {
		codec Codec
		xs    []float32
		want  []byte
	}{
		{BF16, xs[:3], []byte{0x80, 0x3f, 0x80, 0xbf, 0x00, 0x3f}},
		{Int8, xs[:3], []byte{0x04, 0x02, 0x01, 0x3c, 0x7f, 0x81, 0x40}},
		{Int4, xs, []byte{0x13, 0x3e, 0x1f, 0x6b, 0x89, 0x08}},
		{Int4, make([]float32, 3), []byte{0, 0, 0x88, 0x08}},
		// Mean 2, deviation 3.56, width 5.34: 4 is in bin 2, -3 in bin 1 and 5 in bin 3.
		{TopK, sparse, slices.Concat(make([]byte, 4), []byte{0, 0, 0x40, 0xc0, 0, 0, 0x80, 0x40, 0, 0, 0xa0, 0x40}, []byte{0x07, 0x00, 0x04, 0x81, 0x00, 0b11_01_10})},
		{TopK, make([]float32, 65), slices.Concat(make([]byte, 16), []byte{0xff, 0xff, 0xff, 0x0f})},
		{TopK, sparse[:65], slices.Concat(make([]byte, 4), []byte{0, 0, 0x40, 0xc0}, make([]byte, 4), []byte{0, 0, 0x80, 0x40}, []byte{0x07, 0x00, 0x04, 0b01_11})},
		{TopK, sparse[:64], slices.Concat(make([]byte, 8), []byte{0, 0, 0x80, 0x40}, make([]byte, 4), []byte{0x07, 0x00, 0b10})},
	} {
		if b, _ := written(t, tt.codec, tt.xs); !bytes.Equal(b, tt.want) {
			t.Errorf("%v of %v: % x, want % x", tt.codec, tt.xs[:3], b, tt.want)
		}
	}
}

// TestTopKByTheDefinition compares with a sort, and with bins as arXiv 2508.15706 has them, in chunks from the tensor's start, with
// zeros, equal magnitudes and chunks that have fewer elements than are kept.
func TestTopKByTheDefinition(t *testing.T) {
	for _, n := range []int{1, 64, 65, 4096, 3*4096 + 700} {
		xs := normal(n, uint64(n))
		for i := range xs {
			switch {
			case i/4096 == 1 && i%100 != 0, i%97 == 0:
				xs[i] = 0
			case i%5 == 0:
				xs[i] = float32(math.Copysign(2, float64(xs[i])))
			}
		}
		var places []int
		for first := 0; first < n; first += 4096 {
			var order []int
			for i := first; i < min(n, first+4096); i++ {
				order = append(order, i)
			}
			k := (len(order) + 63) / 64
			slices.SortStableFunc(order, func(a, b int) int {
				return -cmp.Compare(math.Abs(float64(xs[a])), math.Abs(float64(xs[b])))
			})
			for _, i := range order[:k] {
				if xs[i] != 0 {
					places = append(places, i)
				}
			}
		}
		slices.Sort(places)
		mean, squares := 0.0, 0.0
		for _, i := range places {
			mean += float64(xs[i])
		}
		mean /= max(1, float64(len(places)))
		for _, i := range places {
			squares += float64((float64(xs[i]) - mean) * (float64(xs[i]) - mean))
		}
		width := 6 * math.Sqrt(squares/max(1, float64(len(places)))) / 4
		binOf := func(i int) int {
			if width == 0 {
				return 2
			}
			return min(3, max(0, int(math.RoundToEven((float64(xs[i])-mean)/width))+2))
		}
		var sums, counts [4]float64
		for _, i := range places {
			sums[binOf(i)] += float64(xs[i])
			counts[binOf(i)]++
		}
		want := make([]float32, n)
		for _, i := range places {
			want[i] = float32(sums[binOf(i)] / counts[binOf(i)])
		}
		b, _ := written(t, TopK, xs)
		if got := read(t, TopK, b, n); !slices.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("of %d elements number %d, %v, is sent as %v, want %v", n, i, xs[i], got[i], want[i])
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	topK := slices.Concat(make([]byte, 8), []byte{0, 0, 0x80, 0x40}, make([]byte, 4), []byte{0x07, 0x80, 0x01, 0b10_10}) // places 7 and 24
	if err := TopK.Add(make([]float32, 65), 1, topK, limit); err != nil {
		t.Fatal(err)
	}
	nan := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	changed := func(b []byte, at int, to ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], to)
		return b
	}
	for name, tt := range map[string]struct {
		codec Codec
		n     int
		b     []byte
		want  error
	}{
		"no codec":            {0, 1, nil, wire.ErrValue},
		"unknown codec":       {codecEnd, 1, nil, wire.ErrValue},
		"cut":                 {F32, 2, make([]byte, 7), wire.ErrLength},
		"trailing":            {TopK, 0, make([]byte, 16), wire.ErrLength},
		"f32 NaN":             {F32, 1, nan, wire.ErrElement},
		"bf16 NaN":            {BF16, 1, nan[2:], wire.ErrElement},
		"bf16 infinite":       {BF16, 1, []byte{0x80, 0x7f}, wire.ErrElement},
		"int8 NaN":            {Int8, 1, append(nan, 1), wire.ErrElement},
		"int4 NaN":            {Int4, 1, []byte{0xc0, 0x7f, 8}, wire.ErrElement},
		"int4 infinite":       {Int4, 1, []byte{0x80, 0x7f, 8}, wire.ErrElement},
		"int4 below zero":     {Int4, 1, []byte{0x80, 0xbf, 8}, wire.ErrElement},
		"int4 -0":             {Int4, 1, []byte{0, 0x80, 8}, wire.ErrElement},
		"int4 step -8":        {Int4, 1, []byte{0x80, 0x3f, 0}, wire.ErrValue},
		"int4 steps of 0":     {Int4, 1, []byte{0, 0, 9}, wire.ErrValue},
		"int4 after the last": {Int4, 1, []byte{0x80, 0x3f, 0x1f}, wire.ErrValue},
		"int4 zeros alone":    {Int4, 2, []byte{0x80, 0x3f, 0x88}, wire.ErrValue},
		"int4 no step of 7":   {Int4, 3, []byte{0x80, 0x3f, 0x8e, 0x02}, wire.ErrValue},
		"int4 tiny":           {Int4, 1, []byte{0x00, 0x0c, 0x0f}, wire.ErrValue},
		"topk NaN":            {TopK, 65, changed(topK, 8, nan...), wire.ErrElement},
		"topk unused bin":     {TopK, 65, changed(topK, 4, 0, 0, 0x80, 0x3f), wire.ErrValue},
		"topk descending":     {TopK, 65, changed(topK, 16, 0x19), wire.ErrValue},
		"topk twice":          {TopK, 65, changed(topK, 16, 0x18), wire.ErrValue},
		"topk beyond":         {TopK, 65, changed(topK, 16, 0x07, 0x10, 0x04), wire.ErrValue},
		"topk after the last": {TopK, 65, changed(topK, 19, 0b01_10_10), wire.ErrValue},
	} {
		if err := tt.codec.Add(make([]float32, tt.n), 1, tt.b, limit); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	for c := F32; c < codecEnd; c++ {
		for _, x := range []float32{limit, float32(math.Inf(-1)), float32(math.NaN())} {
			if _, err := c.Append(nil, make([]float32, 3), []float32{0, x, 0}, limit, 0); !errors.Is(err, wire.ErrElement) {
				t.Errorf("%v takes %v: %v", c, x, err)
			}
		}
		if got, err := Parse(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if _, err := Parse("fp4"); !errors.Is(err, wire.ErrValue) {
		t.Errorf("fp4: %v", err)
	}
}

func TestNoiseNamesThePlace(t *testing.T) {
	seen := map[wire.Noise]bool{}
	for i := range 4096 {
		seen[Place{Step: plan.Step(i % 8), Replica: plan.Replica(i / 8 % 8), Layer: i / 64 % 8, Tensor: i / 512}.Noise(3)] = true
	}
	if len(seen) != 4096 {
		t.Errorf("4096 places have %d noises", len(seen))
	}
}

func FuzzAdd(f *testing.F) {
	for c := F32; c < codecEnd; c++ {
		for _, n := range []int{0, 5, 65, 4500} {
			b, _ := written(f, c, normal(n, 1))
			f.Add(b, n, uint8(c))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, n int, codec uint8) {
		c, sum := Codec(codec%uint8(codecEnd)), make([]float32, max(0, n%10_000))
		if err := c.Add(sum, 1, b, limit); err != nil {
			return
		}
		for i, x := range sum {
			if !within(x, wire.RoundedUp(limit)) { // Int8 writes 128 steps, and looks at 127
				t.Fatalf("element %d of %v is %v", i, c, x)
			}
		}
		if c != Int4 {
			return
		}
		if again, err := c.Append(nil, make([]float32, len(sum)), sum, limit, 0); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("% x is taken as what is written as % x: %v", b, again, err)
		}
	})
}

func FuzzAppend(f *testing.F) {
	for c := F32; c < codecEnd; c++ {
		f.Add(wire.AppendF32(nil, normal(200, 1)), uint8(c))
		f.Add(wire.AppendF32(nil, []float32{1, 0, -1, math.SmallestNonzeroFloat32, 0x1p41}), uint8(c))
	}
	f.Fuzz(func(t *testing.T, b []byte, codec uint8) {
		c, xs := F32+Codec(codec%uint8(codecEnd-F32)), make([]float32, len(b)/4)
		if err := wire.DecodeF32(xs, b[:4*len(xs)]); err != nil {
			t.Fatal(err)
		}
		missed := make([]float32, len(xs))
		out, err := c.Append(nil, missed, xs, limit, wire.Noise(len(b)))
		if finite := wire.CheckElements(kernels.Float32Bytes(xs), limit) == nil; finite != (err == nil) {
			t.Fatalf("%v: %v", c, err)
		}
		if err != nil {
			return
		}
		for i, x := range read(t, c, out, len(xs)) {
			if lost := math.Abs(float64(x) + float64(missed[i]) - float64(xs[i])); lost > 0x1p-21*(math.Abs(float64(xs[i]))+math.Abs(float64(x)))+math.SmallestNonzeroFloat32 {
				t.Fatalf("%v: element %d, %v, was written as %v and lacks %v", c, i, xs[i], x, missed[i])
			}
		}
	})
}

// BenchmarkCodec reports how many times a copy of the same float32 elements in memory an operation takes: the least times of both, measured
// in turns.
func BenchmarkCodec(b *testing.B) {
	grad := normal(1<<20, 1)
	missed, sum := make([]float32, len(grad)), make([]float32, len(grad))
	for c := F32; c < codecEnd; c++ {
		message, err := c.Append(nil, missed, grad, limit, 1)
		if err != nil {
			b.Fatal(err)
		}
		beside := func(name string, f func() error) {
			b.Run(name+"/"+c.String(), func(b *testing.B) {
				b.SetBytes(4 << 20)
				own, copies := time.Hour, time.Hour
				for b.Loop() {
					begin := time.Now()
					if err := f(); err != nil {
						b.Fatal(err)
					}
					done := time.Now()
					copy(sum, grad)
					own, copies = min(own, done.Sub(begin)), min(copies, time.Since(done))
				}
				b.ReportMetric(float64(own)/float64(copies), "copies")
			})
		}
		beside("append", func() (err error) {
			message, err = c.Append(message[:0], missed, grad, limit, 1)
			return err
		})
		beside("add", func() error { return c.Add(sum, 0.5, message, limit) })
	}
}
