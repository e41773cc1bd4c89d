package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// shape is how many replica groups of how many devices.
type shape struct{ replicas, stages int }

func (s shape) devices() int { return s.replicas * s.stages }

func (s shape) String() string {
	return fmt.Sprintf("%s of %s", plan.Count(s.replicas, "replica"), plan.Count(s.stages, "stage"))
}

// bounded is a shape with a step time that it cannot beat.
type bounded struct {
	shape
	bound schedule.Nanos
}

// lowerBound bounds step times with one chunk on each device from below, by what no plan can do better on a pool of devices:
//
//   - The first micro-batch of a replica takes at least the fastest device's time for the whole model, and over each boundary
//     as long as some device needs to its nearest other one and back. The others share all speed there is.
//   - No period is shorter than the longest layer on the device that is best for it, nor than the messages of a micro-batch over
//     the slowest boundary.
//   - What replicas send each other of gradients and parameters leaves each device at its best rate.
type lowerBound struct {
	micros   int
	first    schedule.Nanos
	layer    schedule.Nanos
	rateSum  []int64          // by number of devices, fastest first: micro-batches in 2^rateBits ns
	hopSum   []schedule.Nanos // by number of boundaries, nearest first: there and back
	transfer []schedule.Nanos // by number of boundaries: of the slowest, where each is as quick as can be
	params   int64            // bytes
	sendSum  []int64          // by number of devices, quickest first: bytes per second
}

const rateBits = 40

// newLowerBound returns a search's bound for shapes on devices of a pool.
func newLowerBound(s *search, pool []int) lowerBound {
	devices, n, message := s.models.whole().Devices, len(pool), s.leastMessage()
	b := lowerBound{
		micros: s.in.Run.Train.Micros, params: s.models.whole().Memory.Params(0, s.layers()),
		rateSum: make([]int64, n+1), hopSum: make([]schedule.Nanos, n+1), transfer: make([]schedule.Nanos, n+1), sendSum: make([]int64, n+1),
	}
	wholes, hops, rates := make([]schedule.Nanos, n), make([]schedule.Nanos, n), make([]int64, n)
	for i := range pool {
		hops[i] = cost.Longest
	}
	for i, u := range pool {
		wholes[i] = devices[u].Whole()
		for j, v := range pool[:i] {
			out, in := s.link(u, v), s.link(v, u)
			forth, back := out.Hop(message), in.Hop(message)
			near := forth.Transfer + forth.Latency + back.Transfer + back.Latency
			hops[i], hops[j] = min(hops[i], near), min(hops[j], near)
			rates[i], rates[j] = max(rates[i], out.BytesPerS), max(rates[j], in.BytesPerS)
		}
	}
	slices.Sort(wholes)
	slices.Sort(hops)
	slices.SortFunc(rates, func(a, b int64) int { return cmp.Compare(b, a) })
	for i, w := range wholes {
		b.rateSum[i+1] = b.rateSum[i] + (1<<rateBits)/int64(w) + 1
		b.hopSum[i+1] = min(b.hopSum[i]+hops[i], cost.Longest)
		b.transfer[i+1] = cost.Duration(message, rates[i])
		b.sendSum[i+1] = b.sendSum[i] + min(rates[i], math.MaxInt64/int64(n))
	}
	b.first = wholes[0]
	for l := range s.layers() {
		quickest := schedule.Nanos(math.MaxInt64)
		for _, d := range pool {
			quickest = min(quickest, devices[d].Micro[l+1]-devices[d].Micro[l])
		}
		b.layer = max(b.layer, quickest)
	}
	return b
}

func (b lowerBound) of(s shape) schedule.Nanos {
	shared := schedule.Nanos((int64(max(b.micros-s.replicas, 0)) << rateBits) / b.rateSum[s.devices()])
	most := (b.micros + s.replicas - 1) / s.replicas
	period := max(b.layer, b.transfer[s.stages-1])
	step := b.first + b.hopSum[s.stages-1] + max(shared, schedule.Nanos(most-1)*period)
	return step + b.exchange(s)
}

// exchange bounds from below what replicas send each other of gradients and parameters.
func (b lowerBound) exchange(s shape) schedule.Nanos {
	if s.replicas == 1 {
		return 0
	}
	sent := min(b.params, math.MaxInt64/int64(s.replicas)) * int64(s.replicas-1)
	return 2 * cost.Duration(sent, b.sendSum[s.devices()]) // a reduce-scatter and an all-gather
}
