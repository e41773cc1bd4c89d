package optimum

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// Devices has what plans are made of.
type Devices struct {
	// Model has all optimizer state whole and on its devices.
	Model *cost.Model
	// Pool are the devices that may get a stage.
	Pool []int
	// Micros counts the micro-batches of a step.
	Micros int
	// Bytes returns what a tensor of so many bytes takes on a link at least, Message is the least that crosses any boundary.
	Bytes   func(tensor int64) int64
	Message int64
	// Apart reports that replicas have local steps: within a step they exchange nothing, and each has its own commit.
	Apart bool
}

// Lower bounds step times with one chunk on each device from below, by what no plan can do better on a pool of devices whose workers wait
// for each step's commit (others are looked for among what is found: plan.Plan.PostValidation):
//
//   - The first micro-batch of a replica takes at least the time of each layer on the device that is best for it, and over each boundary
//     as long as some device needs to its nearest other one and back. The others share all speed there is, which counts for each device
//     as at the layer that it is best at beside others.
//   - No period is shorter than the longest layer on the device that is best for it, nor than the messages of a micro-batch over
//     the slowest boundary.
//   - What replicas send each other of gradients and parameters leaves each device at its best rate. It may go on beside passes.
type Lower struct {
	micros   int
	apart    bool
	first    schedule.Nanos
	layer    schedule.Nanos
	rateSum  []int64          // by number of devices, fastest first: micro-batches in 2^rateBits ns
	hopSum   []schedule.Nanos // by number of boundaries, nearest first: there and back
	transfer []schedule.Nanos // by number of boundaries: of the slowest, where each is as quick as can be
	params   int64            // bytes
	sendSum  []int64          // by number of devices, quickest first: bytes per second
}

const rateBits = 40

// NewLower returns the bound for shapes on some devices.
func NewLower(d Devices) Lower {
	n, layers := len(d.Pool), d.Model.Memory.Layers()
	b := Lower{
		micros: d.Micros, apart: d.Apart, params: d.Model.Memory.Params(0, layers),
		rateSum: make([]int64, n+1), hopSum: make([]schedule.Nanos, n+1), transfer: make([]schedule.Nanos, n+1), sendSum: make([]int64, n+1),
	}
	micro := newWork(d, func(t schedule.StageTime) schedule.Nanos { return t.Micro() })
	hops, rates := make([]schedule.Nanos, n), make([]int64, n)
	for i := range d.Pool {
		hops[i] = cost.Longest
	}
	for i, u := range d.Pool {
		for j, v := range d.Pool[:i] {
			out, in := d.Model.Link(u, v), d.Model.Link(v, u)
			forth, back := out.Hop(d.Message), in.Hop(d.Message)
			near := forth.Transfer + forth.Latency + back.Transfer + back.Latency
			hops[i], hops[j] = min(hops[i], near), min(hops[j], near)
			rates[i], rates[j] = max(rates[i], out.BytesPerS), max(rates[j], in.BytesPerS)
		}
	}
	b.first = min(micro.quickest[layers], schedule.MaxNanos)
	slices.Sort(hops)
	slices.SortFunc(rates, func(a, b int64) int { return cmp.Compare(b, a) })
	for i, u := range micro.first {
		b.rateSum[i+1] = b.rateSum[i] + micro.rates[u]<<(rateBits-workBits)/max(int64(b.first), 1) + 1
		b.hopSum[i+1] = min(b.hopSum[i]+hops[i], cost.Longest)
		b.transfer[i+1] = cost.Duration(d.Message, rates[i])
		b.sendSum[i+1] = b.sendSum[i] + min(rates[i], math.MaxInt64/int64(n))
	}
	for l := range layers {
		b.layer = max(b.layer, micro.quickest[l+1]-micro.quickest[l])
	}
	return b
}

// Of returns a step that no plan of so many replicas and stages beats.
func (b Lower) Of(replicas, stages int) schedule.Nanos {
	return max(b.passes(replicas, stages), b.exchange(replicas, stages)) // which goes on beside other stages' passes
}

// Likely returns a step that such plans come closer to, though not all: few of their exchanges go on beside passes.
func (b Lower) Likely(replicas, stages int) schedule.Nanos {
	return b.passes(replicas, stages) + b.exchange(replicas, stages)
}

// passes bounds the passes of a step.
func (b Lower) passes(replicas, stages int) schedule.Nanos {
	shared := schedule.Nanos((int64(max(b.micros-replicas, 0)) << rateBits) / b.rateSum[replicas*stages])
	most := (b.micros + replicas - 1) / replicas
	period := max(b.layer, b.transfer[stages-1])
	return b.first + b.hopSum[stages-1] + max(shared, schedule.Nanos(most-1)*period)
}

// exchange bounds from below what replicas send each other of gradients and parameters.
func (b Lower) exchange(replicas, stages int) schedule.Nanos {
	if replicas == 1 || b.apart {
		return 0
	}
	sent := min(b.params, math.MaxInt64/int64(replicas)) * int64(replicas-1)
	return 2 * cost.Duration(sent, b.sendSum[replicas*stages]) // a reduce-scatter and an all-gather
}
