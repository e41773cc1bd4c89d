package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pnode/kernels"
)

var (
	absent        = kernels.View{}
	attention     = kernels.AttentionShape{B: 2, T: 131, H: 6, K: 3, D: 20}
	attentionPart = kernels.AttentionPartShape{
		AttentionShape: kernels.AttentionShape{B: 2, T: 600, H: 4, K: 2, D: 20}, From: 200, Queries: 330,
	}
)

// bitCalls are calls that are cut into several tasks.
var bitCalls = []kernels.Call{
	kernels.MatMul(absent, absent, absent, absent, 203, 290, 530, kernels.Accumulate),
	kernels.MatMul(absent, absent, absent, absent, 230, 700, 300, kernels.TransA),
	kernels.MatMul(absent, absent, absent, absent, 500, 33, 65, kernels.TransB),
	kernels.ColumnSum(absent, absent, 1000, 70, 0),
	kernels.EmbedForward(absent, absent, absent, absent, 9, 40, 130, 11),
	kernels.EmbedBackward(absent, absent, absent, absent, 9, 40, 230, 11),
	kernels.LayerNormForward(absent, absent, absent, absent, absent, absent, 700, 90, 1e-5),
	kernels.LayerNormBackwardInput(absent, absent, absent, absent, absent, absent, absent, 700, 90),
	kernels.LayerNormBackwardWeight(absent, absent, absent, absent, absent, absent, 700, 90),
	kernels.AddLayerNormForward(absent, absent, absent, absent, absent, absent, absent, absent, 700, 90, 1e-5),
	kernels.RMSNormForward(absent, absent, absent, absent, 700, 90, 1e-5),
	kernels.AddRMSNormForward(absent, absent, absent, absent, absent, absent, 700, 90, 1e-5),
	kernels.RMSNormBackwardInput(absent, absent, absent, absent, absent, absent, 700, 90),
	kernels.RMSNormBackwardWeight(absent, absent, absent, absent, 700, 90),
	kernels.RoPE(absent, absent, absent, kernels.RoPEShape{Rows: 700, T: 100, Start: 3, Heads: 3, D: 24, Width: 90}, 0),
	kernels.AttentionForward(absent, absent, absent, absent, attention),
	kernels.AttentionBackward(absent, absent, absent, absent, absent, absent, absent, attention),
	kernels.AttentionForwardPart(absent, absent, absent, absent, attentionPart),
	kernels.AttentionBackwardPart(absent, absent, absent, absent, absent, absent, absent, attentionPart, 0),
	kernels.AttentionBackwardPart(absent, absent, absent, absent, absent, absent, absent, attentionPart, kernels.Accumulate),
	kernels.AttentionCached(absent, absent, absent, absent, kernels.CachedAttentionShape{AttentionShape: attention, Past: 77, Max: 210}),
	kernels.AttentionCached(absent, absent, absent, absent, kernels.CachedAttentionShape{AttentionShape: kernels.AttentionShape{B: 2, T: 1, H: 6, K: 3, D: 20}, Past: 1000, Max: 1001}),
	kernels.SwiGLUForward(absent, absent, 700, 90), kernels.SwiGLUBackward(absent, absent, absent, 700, 90),
	kernels.Dropout(absent, absent, 100003, 7, 0.3, kernels.Random{Key: 1, Stream: 2}),
	kernels.Cast(absent, absent, 100003),
	kernels.GELUForward(absent, absent, 100003), kernels.GELUBackward(absent, absent, absent, 100003),
	kernels.CrossEntropy(absent, absent, absent, 500, 101, 0.1),
	kernels.AdamW(absent, absent, absent, absent, 100003, kernels.AdamWScalars{LR: 0.1, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, Correction1: 1, Correction2: 1, GradScale: 1}),
	byChance(kernels.AdamW(absent, absent, absent, absent, 100003, kernels.AdamWScalars{LR: 0.1, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, Correction1: 1, Correction2: 1, GradScale: 1})),
	kernels.Quantize(absent, absent, absent, 100003, 10, 5),
	kernels.Dequantize(absent, absent, 100003),
	kernels.MatMulInt8(absent, absent, absent, absent, 13, 700, 1000), kernels.MatMulInt8(absent, absent, absent, absent, 203, 290, 530),
	kernels.EmbedInt8(absent, absent, absent, absent, 9, 40, 130, 11),
	kernels.SumSquares(absent, absent, 100003),
	kernels.Add(absent, absent, absent, 100003), kernels.Scale(absent, 100003, 3),
	kernels.Combine(absent, absent, absent, 100003, 0.7, -1.3), kernels.CombineSquare(absent, absent, absent, 317, 0.7, -1.3, 3.4),
	kernels.Fill(absent, 100003, 3), kernels.Copy(absent, absent, 100003),
}

// byChance is a call that rounds by chance.
func byChance(c kernels.Call) kernels.Call {
	c.Flags, c.Dims[1], c.Random = kernels.Stochastic, 7, kernels.Random{Key: 1, Stream: 2}
	return c
}

// outputBits runs a call on operands drawn from a fixed seed and gives the bits of
// everything it wrote.
func outputBits(t *testing.T, dev *Device, c kernels.Call) []uint32 {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	info := kernels.Info(c.Op)
	for k, o := range info.Operands {
		buf, err := dev.Alloc(o.DType, o.Count(c))
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Free()
		c.Args[k] = kernels.Whole(buf)
		host := make([]float32, buf.Len())
		for i := range host {
			host[i] = rng.Float32()
			if o.DType == kernels.I32 && o.Name != "words" { // whose scales are floats
				host[i] = math.Float32frombits(firstIndex(c, i, rng))
			}
		}
		q.Write(c.Args[k], kernels.Float32Bytes(host)[:len(host)*o.DType.SizeBytes()])
	}
	q.Do(c)
	var bits []uint32
	for k, o := range info.Operands {
		if o.Role == kernels.In {
			continue
		}
		host := make([]float32, o.Count(c))
		q.Read(kernels.Float32Bytes(host)[:len(host)*o.DType.SizeBytes()], c.Args[k])
		for _, x := range host {
			bits = append(bits, math.Float32bits(x))
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return bits
}

// firstIndex is a token, or a key that the query of element i may see.
func firstIndex(c kernels.Call, i int, rng *rand.Rand) uint32 {
	if kernels.Info(c.Op).Class == kernels.ClassAttention {
		return rng.Uint32N(uint32(i%c.Dims[1] + 1))
	}
	return rng.Uint32N(11)
}

// leavesFloatsOut reports whether a test does without float32, which a variant that multiplies BF16 shares with the next
// candidate.
func (c candidate) leavesFloatsOut() bool { return testing.Short() && c.pairs.multiply != nil }

func TestThreadsDoNotChangeBits(t *testing.T) {
	seen := map[kernels.Op]bool{}
	for _, v := range candidates() {
		if v.leavesFloatsOut() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			one, others := newDevice(t, Options{Threads: 1}), []*Device{newDevice(t, Options{Threads: 7})}
			if !testing.Short() {
				others = append(others, newDevice(t, Options{Threads: 2}))
			}
			for _, c := range bitCalls {
				seen[c.Op] = true
				want := outputBits(t, one, c)
				for _, dev := range others {
					if i := firstDifference(outputBits(t, dev, c), want); i >= 0 {
						t.Errorf("%v: element %d differs between 1 and %d threads", c, i, dev.Threads())
					}
				}
			}
		})
	}
	for _, op := range kernels.Ops() {
		if !seen[op] {
			t.Errorf("%v is not covered", op)
		}
	}
}

func firstDifference(a, b []uint32) int {
	for i := range b {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestPlaceDoesNotChangeBits multiplies parts of A and B and expects the very elements of
// the whole product, wherever tiles, tasks and what is packed at one time end.
func TestPlaceDoesNotChangeBits(t *testing.T) {
	small, large := placement{m: 101, n: 150, k: 300, parts: 20}, placement{m: flatRows + 7, n: packWidth + 90, k: packLimit/packWidth + 2*depthBlock, parts: 3}
	odd := placement{m: 101, n: 150, k: 301, parts: 20}
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			if !v.leavesFloatsOut() {
				small.check(t, dev, kernels.F32)
				large.check(t, dev, kernels.F32)
			}
			if v.pairs.multiply != nil {
				odd.check(t, dev, kernels.BF16)
				large.check(t, dev, kernels.BF16)
			}
		})
	}
}

// placement is a product [m,n] and how many of its parts to look at.
type placement struct{ m, n, k, parts int }

func (p placement) check(t *testing.T, dev *Device, stored kernels.DType) {
	t.Helper()
	m, n, k := p.m, p.n, p.k
	a, b, bias := upload(t, dev, ramp(m*k, 7)), upload(t, dev, ramp(n*k, 11)), upload(t, dev, ramp(n, 5))
	if stored.Half() {
		_, a = rounded(t, dev, stored, ramp(m*k, 7))
		_, b = rounded(t, dev, stored, ramp(n*k, 11))
	}
	whole := download(t, dev, m*n, func(out kernels.View) kernels.Call {
		return kernels.MatMul(out, a, b, bias, m, n, k, kernels.TransB)
	})
	rng := rand.New(rand.NewPCG(3, 4))
	for range p.parts {
		top, left := rng.IntN(m), rng.IntN(n)
		rows, cols := 1+rng.IntN(m-top), 1+rng.IntN(n-left)
		part := download(t, dev, rows*cols, func(out kernels.View) kernels.Call {
			return kernels.MatMul(out, a.Slice(top*k, rows*k), b.Slice(left*k, cols*k), bias.Slice(left, cols), rows, cols, k, kernels.TransB)
		})
		for i, x := range part {
			if want := whole[(top+i/cols)*n+left+i%cols]; x != want {
				t.Fatalf("rows %d+%d, columns %d+%d: element %d is %v, %v in the whole product", top, rows, left, cols, i, x, want)
			}
		}
	}
}

func upload(t *testing.T, dev *Device, x []float32) kernels.View {
	t.Helper()
	buf, err := dev.Alloc(kernels.F32, len(x))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	copy(floats(kernels.Whole(buf)), x)
	return kernels.Whole(buf)
}

// download runs the call made for a fresh output of n elements and gives them.
func download(t *testing.T, dev *Device, n int, call func(out kernels.View) kernels.Call) []float32 {
	t.Helper()
	out := upload(t, dev, make([]float32, n))
	if err := dev.run(call(out)); err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), floats(out)...)
}

// TestPartsOfAttentionGiveTheBitsOfTheWhole runs both passes over all queries, and over parts
// of them that begin at all kinds of places.
func TestPartsOfAttentionGiveTheBitsOfTheWhole(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			for _, c := range []struct {
				shape  kernels.AttentionShape
				bounds []int
			}{
				{kernels.AttentionShape{B: 2, T: 128, H: 2, K: 2, D: 16}, []int{0, 32, 64, 96, 128}},
				{kernels.AttentionShape{B: 1, T: 600, H: 3, K: 3, D: 20}, []int{0, 32, 224, 256, 288, 576, 600}},
				{kernels.AttentionShape{B: 1, T: 700, H: 4, K: 2, D: 20}, []int{0, 256, 512, 700}},
				{kernels.AttentionShape{B: 1, T: 700, H: 4, K: 1, D: 33}, []int{0, 512, 700}},
			} {
				if !v.leavesFloatsOut() {
					checkParts(t, dev, kernels.F32, c.shape, c.bounds, false)
					checkParts(t, dev, kernels.F32, c.shape, c.bounds, true)
				}
				checkParts(t, dev, kernels.BF16, c.shape, c.bounds, true)
			}
		})
	}
}

// checkParts compares what passes over the parts between bounds write with passes over all.
func checkParts(t *testing.T, dev *Device, stored kernels.DType, s kernels.AttentionShape, bounds []int, masked bool) {
	t.Helper()
	passes(t, dev, stored, s, bounds, masked).compare(t, passes(t, dev, stored, s, []int{0, s.T}, masked))
}

// attentionPasses are the bits that both passes wrote, and of what.
type attentionPasses struct {
	of             string
	out, lse, dqkv []uint32
}

func (a attentionPasses) compare(t *testing.T, want attentionPasses) {
	t.Helper()
	for k, name := range []string{"out", "lse", "dqkv"} {
		if i := firstDifference([][]uint32{a.out, a.lse, a.dqkv}[k], [][]uint32{want.out, want.lse, want.dqkv}[k]); i >= 0 {
			t.Errorf("%s: element %d of %s is another one than in %s", a.of, i, name, want.of)
		}
	}
}

// passes runs both passes over the parts between bounds, or over all queries where these bound the whole, on
// operands drawn from a fixed seed.
func passes(t *testing.T, dev *Device, stored kernels.DType, s kernels.AttentionShape, bounds []int, masked bool) attentionPasses {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6))
	draw := func(dtype kernels.DType, n int) kernels.View {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		if !dtype.Half() {
			return upload(t, dev, x)
		}
		_, half := rounded(t, dev, dtype, x)
		return half
	}
	rows := s.B * s.T
	qkv, dout := draw(stored, rows*(s.H+2*s.K)*s.D), draw(stored, rows*s.H*s.D)
	starts := absent
	if masked {
		starts = firstKeys(t, dev, rng, s)
	}
	out, lse, delta, dqkv := draw(stored, rows*s.H*s.D), draw(kernels.F32, rows*s.H), draw(kernels.F32, rows*s.H), draw(kernels.F32, qkv.Len)
	calls := []kernels.Call{
		kernels.AttentionForward(out, lse, qkv, starts, s),
		kernels.AttentionBackward(dqkv, delta, dout, qkv, out, lse, starts, s),
	}
	if len(bounds) > 2 {
		calls = nil
		for k, from := range bounds[:len(bounds)-1] {
			calls = append(calls, kernels.AttentionForwardPart(out, lse, qkv, starts, kernels.AttentionPartShape{AttentionShape: s, From: from, Queries: bounds[k+1] - from}))
		}
		flags := kernels.Flags(0)
		for k := len(bounds) - 2; k >= 0; k-- {
			part := kernels.AttentionPartShape{AttentionShape: s, From: bounds[k], Queries: bounds[k+1] - bounds[k]}
			calls = append(calls, kernels.AttentionBackwardPart(dqkv, delta, dout, qkv, out, lse, starts, part, flags))
			flags = kernels.Accumulate
		}
	}
	for _, c := range calls {
		if err := dev.run(c); err != nil {
			t.Fatal(err)
		}
	}
	of := fmt.Sprintf("%s, %v, %+v in parts %v, masked %v", dev.v.name, stored, s, bounds, masked)
	return attentionPasses{of, bitsOf(dev, out), bitsOf(dev, lse), bitsOf(dev, dqkv)}
}

// bitsOf are the bits of floats, as float32 where they are stored as a half.
func bitsOf(dev *Device, v kernels.View) (bits []uint32) {
	of := dev.v.elements(v)
	if of.half != nil {
		of.wide = make([]float32, v.Len)
		of.widen(of.wide, of.half)
	}
	for _, f := range of.wide {
		bits = append(bits, math.Float32bits(f))
	}
	return bits
}

// firstKeys draws the first key of each query.
func firstKeys(t *testing.T, dev *Device, rng *rand.Rand, s kernels.AttentionShape) kernels.View {
	t.Helper()
	buf, err := dev.Alloc(kernels.I32, s.B*s.T)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	for i := range ints(kernels.Whole(buf)) {
		ints(kernels.Whole(buf))[i] = rng.Int32N(int32(i%s.T + 1))
	}
	return kernels.Whole(buf)
}
