package planner

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/partition"
)

// weightBits is how much of a device's speed a split by speed leaves out, and maxWeight the most that it reads: sums with all layers fit.
const (
	weightBits = 10
	maxWeight  = 1<<38 - 1
)

// splits returns the plans that people make by hand with all devices of a pool: as many layers for each, or as many as suit its speed, in
// the devices' own order and from fast to slow. So no first plan is longer than these. It leaves out shapes that cannot be shorter than what
// was found.
func (e exact) splits(pool []int, shapes []bounded, found []*candidate) (out []*candidate) {
	s := e.search
	if !s.order.elastic() {
		return nil
	}
	best := schedule.Nanos(math.MaxInt64)
	for _, k := range found {
		best = min(best, k.step())
	}
	speed := func(d int) int64 {
		return max(1, min(s.problem.devices[d].profile.MatMulFLOPS>>weightBits, maxWeight))
	}
	fastest := slices.Clone(pool)
	slices.SortStableFunc(fastest, func(a, b int) int { return cmp.Compare(speed(b), speed(a)) })
	for _, b := range shapes {
		if b.devices() != len(pool) || b.bound > best || s.in.Run.CheckMessages(b.stages) != nil {
			continue
		}
		for _, devices := range [][]int{pool, fastest} {
			for _, weight := range []func(int) int64{func(int) int64 { return 1 }, speed} {
				if k := e.split(b.shape, devices, weight); k != nil {
					out, best = append(out, k), min(best, k.step())
				}
			}
		}
	}
	return out
}

// split returns devices in order with layers by weight, simulated; nil where that does not fit.
func (e exact) split(sh shape, devices []int, weight func(int) int64) *candidate {
	s := e.search
	k := &candidate{shape: sh, order: s.order, model: e.modelFor(sh)}
	for some := range slices.Chunk(devices, sh.stages) {
		weights, ends, end := make([]int64, sh.stages), make([]int, sh.stages), 0
		for i, d := range some {
			weights[i] = weight(d)
		}
		for i, n := range partition.Apportion(s.layers(), weights) {
			end += n
			ends[i] = end
		}
		key := cutKey{model: k.model, devices: pack(some), ends: pack(ends), elastic: true}
		p, err := s.once(key, func() (*pipe, error) { return s.cutter(k).pipe(slices.Clone(some), ends) })
		if err != nil {
			return nil
		}
		k.pipes = append(k.pipes, p)
	}
	if s.timed(k) != nil {
		return nil
	}
	return k
}
