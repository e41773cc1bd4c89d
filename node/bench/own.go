package bench

import (
	"math"
	"math/rand/v2"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// ownCall repeats a call on this program's device.
type ownCall struct {
	q       kernels.Queue
	call    kernels.Call
	buffers []kernels.Buffer
}

func newOwnProduct(dev *cpu.Device, p Product, flags kernels.Flags) (*ownCall, error) {
	none := kernels.View{}
	return newOwnCall(dev, kernels.MatMul(none, none, none, none, p.M, p.N, p.K, flags), 3)
}

// newOwnCall gives the first operands of the call buffers of random numbers.
func newOwnCall(dev *cpu.Device, call kernels.Call, operands int) (*ownCall, error) {
	q, err := dev.NewQueue()
	if err != nil {
		return nil, err
	}
	o := &ownCall{q: q, call: call}
	rng := rand.New(rand.NewPCG(1, 2))
	for i, operand := range kernels.Info(call.Op).Operands[:operands] {
		host := make([]float32, operand.Count(call))
		for j := range host {
			host[j] = rng.Float32() - 0.5
		}
		buf, err := dev.Alloc(kernels.F32, len(host))
		if err != nil {
			o.close()
			return nil, err
		}
		o.buffers = append(o.buffers, buf)
		o.call.Args[i] = kernels.Whole(buf)
		q.Write(o.call.Args[i], kernels.Float32Bytes(host))
	}
	return o, q.Sync()
}

// roundTime is how long a side runs in a round. Its figure is the fastest batch of calls:
// threads wake up late, and not always on a core of their own, when a machine is busy.
var roundTime = 250 * time.Millisecond

// run gives the seconds of the fastest batch of `calls` calls.
func (o *ownCall) run(calls int) (float64, error) {
	fastest := math.Inf(1)
	for round := time.Now(); time.Since(round) < roundTime; {
		begin := time.Now()
		for range calls {
			o.q.Do(o.call)
		}
		if err := o.q.Sync(); err != nil {
			return 0, err
		}
		fastest = min(fastest, time.Since(begin).Seconds())
	}
	return fastest, nil
}

func (o *ownCall) close() {
	_ = o.q.Close() // its sticky error has come out of run
	for _, b := range o.buffers {
		b.Free()
	}
}
