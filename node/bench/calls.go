package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"pnode/kernels"
)

// ownCalls repeats calls on a device of this program.
type ownCalls struct {
	dev     kernels.Device
	q       kernels.Queue
	calls   []kernels.Call
	buffers []kernels.Buffer
	rng     *rand.Rand
	err     error // of operands
}

// newOwnCalls returns the calls that build makes, ready to be repeated.
func newOwnCalls(dev kernels.Device, build func(o *ownCalls) []kernels.Call) (*ownCalls, error) {
	q, err := dev.NewQueue()
	if err != nil {
		return nil, err
	}
	o := &ownCalls{dev: dev, q: q, rng: rand.New(rand.NewPCG(1, 2))}
	o.calls = build(o)
	if o.err == nil {
		o.err = q.Sync()
	}
	if o.err != nil {
		o.close()
		return nil, o.err
	}
	return o, nil
}

// product builds the product of operands of random numbers.
func product(dtype kernels.DType, m, n, k int, flags kernels.Flags) func(*ownCalls) []kernels.Call {
	return func(o *ownCalls) []kernels.Call {
		c, a, b := o.random(dtype, m*n), o.random(dtype, m*k), o.random(dtype, n*k)
		return []kernels.Call{kernels.MatMul(c, a, b, kernels.View{}, m, n, k, flags)}
	}
}

// ProductRate measures how many operations a second a device does in float32 products of so many rows, columns and terms: the most of
// some batches within a time.
func ProductRate(dev kernels.Device, m, n, k int, within time.Duration) (flops float64, err error) {
	o, err := newOwnCalls(dev, product(kernels.F32, m, n, k, kernels.TransB))
	if err != nil {
		return 0, err
	}
	defer o.close()
	a, err := o.run(callRequest{Calls: 1, RoundTime: within.Seconds()})
	return 2 * float64(m) * float64(n) * float64(k) / a.Seconds, err
}

// attention builds both passes of causal attention in bf16.
func attention(s kernels.AttentionShape) func(*ownCalls) []kernels.Call {
	return func(o *ownCalls) []kernels.Call {
		none, rows := kernels.View{}, s.B*s.T*s.H
		values, packed := rows*s.D, s.B*s.T*(s.H+2*s.K)*s.D
		qkv, dqkv := o.random(kernels.BF16, packed), o.random(kernels.BF16, packed)
		out, dout := o.random(kernels.BF16, values), o.random(kernels.BF16, values)
		lse, delta := o.random(kernels.F32, rows), o.random(kernels.F32, rows)
		return []kernels.Call{
			kernels.AttentionForward(out, lse, qkv, none, s), kernels.AttentionBackward(dqkv, delta, dout, qkv, out, lse, none, s),
		}
	}
}

// random returns a new operand of n numbers between -0.5 and 0.5. The first error sticks.
func (o *ownCalls) random(dtype kernels.DType, n int) (v kernels.View) {
	if o.err != nil {
		return v
	}
	buf, err := o.dev.Alloc(dtype, n)
	if o.err = err; err != nil {
		return v
	}
	o.buffers = append(o.buffers, buf)
	numbers := make([]float32, n)
	for i := range numbers {
		numbers[i] = o.rng.Float32() - 0.5
	}
	bytes := kernels.Float32Bytes(numbers)
	if dtype == kernels.BF16 { // the upper half of a float32
		for i := range n {
			copy(bytes[2*i:], bytes[4*i+2:4*i+4])
		}
		bytes = bytes[:2*n]
	}
	v = kernels.Whole(buf)
	o.q.Write(v, bytes)
	return v
}

// callRequest asks a side for the fastest batch of so many calls.
type callRequest struct {
	Calls     int     `json:"calls"`
	RoundTime float64 `json:"round_time"` // seconds
}

// maxCalls bounds a batch: a device's queue has an end.
const maxCalls = 1000

// roundTime is how long a side runs in a round. Its figure is the fastest batch of calls:
// threads wake up late, and not always on a core of their own, when a machine is busy.
var roundTime = 250 * time.Millisecond

// run returns the seconds of the fastest batch within a round.
func (o *ownCalls) run(r callRequest) (a answer, err error) {
	if r.Calls < 1 || r.Calls > maxCalls {
		return a, fmt.Errorf("%d calls, want 1 to %d", r.Calls, maxCalls)
	}
	a.Seconds = math.Inf(1)
	for start := time.Now(); ; {
		begin := time.Now()
		for range r.Calls {
			for _, c := range o.calls {
				o.q.Do(c)
			}
		}
		if err := o.q.Sync(); err != nil {
			return a, err
		}
		a.Seconds = min(a.Seconds, time.Since(begin).Seconds())
		if time.Since(start).Seconds() >= r.RoundTime {
			return a, nil
		}
	}
}

func (o *ownCalls) close() {
	_ = o.q.Close() // its sticky error has come out of run
	for _, b := range o.buffers {
		b.Free()
	}
}
