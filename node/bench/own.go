package bench

import (
	"math"
	"math/rand/v2"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// ownCalls repeats calls on this program's device.
type ownCalls struct {
	dev     kernels.Device
	q       kernels.Queue
	calls   []kernels.Call
	buffers []kernels.Buffer
	rng     *rand.Rand
	err     error // of operands
}

func newOwnCalls(dev kernels.Device) (*ownCalls, error) {
	q, err := dev.NewQueue()
	return &ownCalls{dev: dev, q: q, rng: rand.New(rand.NewPCG(1, 2))}, err
}

func newOwnProduct(dev *cpu.Device, p Product, flags kernels.Flags) (*ownCalls, error) {
	none := kernels.View{}
	return newOwnCall(dev, kernels.MatMul(none, none, none, none, p.M, p.N, p.K, flags), 3)
}

// newOwnCall gives the first operands of the call buffers of random numbers.
func newOwnCall(dev kernels.Device, call kernels.Call, operands int) (*ownCalls, error) {
	o, err := newOwnCalls(dev)
	if err != nil {
		return nil, err
	}
	for i, operand := range kernels.Info(call.Op).Operands[:operands] {
		call.Args[i] = o.random(kernels.F32, operand.Count(call))
	}
	return o.repeat(call)
}

// repeat is what is repeated, once operands have been made for it; without them o is closed.
func (o *ownCalls) repeat(calls ...kernels.Call) (*ownCalls, error) {
	o.calls = calls
	if o.err == nil {
		o.err = o.q.Sync()
	}
	if o.err != nil {
		o.close()
		return nil, o.err
	}
	return o, nil
}

// zeros is a new operand of n elements, random one of numbers between -0.5 and 0.5. The first error
// sticks.
func (o *ownCalls) zeros(dtype kernels.DType, n int) (v kernels.View) {
	if o.err != nil {
		return v
	}
	buf, err := o.dev.Alloc(dtype, n)
	if o.err = err; err != nil {
		return v
	}
	o.buffers = append(o.buffers, buf)
	return kernels.Whole(buf)
}

func (o *ownCalls) random(dtype kernels.DType, n int) kernels.View {
	v := o.zeros(dtype, n)
	if o.err == nil {
		o.q.Write(v, o.numbers(dtype, n))
	}
	return v
}

func (o *ownCalls) numbers(dtype kernels.DType, n int) []byte {
	if dtype == kernels.F32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = o.rng.Float32() - 0.5
		}
		return kernels.Float32Bytes(x)
	}
	halves := make([]byte, 0, 2*n)
	for range n { // bf16 is the upper half of a float32
		bits := math.Float32bits(o.rng.Float32() - 0.5)
		halves = append(halves, byte(bits>>16), byte(bits>>24))
	}
	return halves
}

// roundTime is how long a side runs in a round. Its figure is the fastest batch of calls:
// threads wake up late, and not always on a core of their own, when a machine is busy.
var roundTime = 250 * time.Millisecond

// run gives the seconds of the fastest batch, each of so many times all calls, within a round.
func (o *ownCalls) run(times int, round time.Duration) (float64, error) {
	fastest := math.Inf(1)
	for start := time.Now(); ; {
		begin := time.Now()
		for range times {
			for _, c := range o.calls {
				o.q.Do(c)
			}
		}
		if err := o.q.Sync(); err != nil {
			return 0, err
		}
		fastest = min(fastest, time.Since(begin).Seconds())
		if time.Since(start) >= round {
			return fastest, nil
		}
	}
}

func (o *ownCalls) close() {
	_ = o.q.Close() // its sticky error has come out of run
	for _, b := range o.buffers {
		b.Free()
	}
}
