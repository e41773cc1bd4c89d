package conform

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"pnode/kernels"
)

// largeScores is an attention whose queries and keys are large numbers of a half: of nearly every query
// one key has all the probability. Of others, sums in float32 tell scores apart no better than their
// last digit.
type largeScores struct {
	half           kernels.DType // or F32
	shape          kernels.AttentionShape
	qkv, dout      []float64 // [B,T,(H+2K)D], [B,T,H*D]
	out, lse, dqkv []float64 // what must come of them
}

// newLargeScores draws queries and keys about so large, and the rest as usual.
func newLargeScores(half kernels.DType, size float64) *largeScores {
	s := kernels.AttentionShape{B: 1, T: 137, H: 2, K: 1, D: 24}
	l := &largeScores{half: half, shape: s, qkv: make([]float64, s.T*(s.H+2*s.K)*s.D), dout: make([]float64, s.T*s.H*s.D)}
	rng := rand.New(rand.NewPCG(3, uint64(size)))
	for i := range l.qkv {
		l.qkv[i] = rng.NormFloat64()
		if i/s.D%(s.H+2*s.K) < s.H+s.K {
			l.qkv[i] *= size
		}
	}
	for i := range l.dout {
		l.dout[i] = rng.NormFloat64()
	}
	roundTo(half, l.qkv)
	roundTo(half, l.dout)
	l.solve()
	return l
}

// solve has the reference compute, with logs as they are, not as float32 has them.
func (l *largeScores) solve() {
	s := l.shape
	l.out, l.lse, l.dqkv = make([]float64, len(l.dout)), make([]float64, s.H*s.T), make([]float64, len(l.qkv))
	dims := kernels.Dims{s.B, s.T, s.H, s.K, s.D}
	attentionForward(kernels.Call{Op: kernels.OpAttentionForward, Dims: dims}, [][]float64{l.out, l.lse, l.qkv, nil})
	roundTo(l.half, l.out)
	attentionBackward(kernels.Call{Op: kernels.OpAttentionBackward, Dims: dims}, [][]float64{l.dqkv, nil, l.dout, l.qkv, l.out, l.lse, nil})
}

// largeSizes give scores of about 10^4, 10^6 and 10^9.
var largeSizes = []float64{60, 700, 20000}

// RunLargeScores runs attentions forward and backward whose queries and keys are large numbers of a half,
// and wants finite numbers that are right. Where two keys share a query, scores in float32 lose about 1%
// of a probability at 10^4, and so does a half of another last digit in out: tolerance is for that.
func RunLargeScores(t *testing.T, dev kernels.Device, half kernels.DType, tolerance float64) {
	for _, size := range largeSizes {
		l := newLargeScores(half, size)
		out, dqkv := l.run(t, dev)
		if err := compareResults(out, l.out, tolerance); err != nil {
			t.Errorf("attention of %v about %v: out: %v", half, size, err)
		}
		if err := compareResults(dqkv, l.dqkv, tolerance); err != nil {
			t.Errorf("attention of %v about %v: dqkv: %v", half, size, err)
		}
	}
}

func single(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

// run has a device do both passes, the second from its own results of the first.
func (l *largeScores) run(t *testing.T, dev kernels.Device) (out, dqkv []float32) {
	t.Helper()
	stored := NewViews(t, dev, l.half, len(l.qkv), len(l.dout), len(l.out))
	floats := NewViews(t, dev, kernels.F32, len(l.lse), len(l.lse), len(l.dqkv))
	q := newQueue(t, dev)
	q.Write(stored[0], storedBytes(l.half, l.qkv))
	q.Write(stored[1], storedBytes(l.half, l.dout))
	q.Do(kernels.AttentionForward(stored[2], floats[0], stored[0], kernels.View{}, l.shape))
	q.Do(kernels.AttentionBackward(floats[2], floats[1], stored[1], stored[0], stored[2], floats[0], kernels.View{}, l.shape))
	raw := make([]byte, l.half.SizeBytes()*len(l.out))
	dqkv = make([]float32, len(l.dqkv))
	q.Read(raw, stored[2])
	q.Read(kernels.Float32Bytes(dqkv), floats[2])
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return decoded(l.half, raw), dqkv
}

// storedBytes are numbers that a type can hold, as they are stored.
func storedBytes(dtype kernels.DType, x []float64) (raw []byte) {
	if !dtype.Half() {
		return kernels.Float32Bytes(single(x))
	}
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint16(raw, HalfBits(dtype, float32(v)))
	}
	return raw
}

// NewViews returns views of new buffers of zeros, of so many elements each, freed at the end of the test.
func NewViews(t testing.TB, dev kernels.Device, dtype kernels.DType, counts ...int) (views []kernels.View) {
	t.Helper()
	for _, n := range counts {
		buf, err := dev.Alloc(dtype, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Free)
		views = append(views, kernels.Whole(buf))
	}
	return views
}
