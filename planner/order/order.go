package order

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

// Devices has what orders depend on, by device.
type Devices struct {
	// Whole is the time of the whole model on a device per micro-batch.
	Whole     []schedule.Nanos
	FreeBytes []int64
	// Near is the time of a micro-batch's activation and gradient between two devices, Measured
	// reports whether anybody measured any of that.
	Near     [][]schedule.Nanos
	Measured bool
	// Prior lists the devices of the plan in force in its order, -1 for one that is gone; nil for none.
	Prior []int
}

const (
	// chainStarts bounds from how many devices a chain is begun, chainSteps the steps that
	// this may take in all.
	chainStarts = 32
	chainSteps  = 1 << 19
	// growStarts is from how many devices sets are grown, growUpTo the size of a pool up to which that is done.
	growStarts = 3
	growUpTo   = 64
)

// Sets returns the sets of n devices of the pool worth a look, each sorted: the fastest;
// where links are measured, the fastest with their best link counted, and those that are fast and near to each other;
// and the plan in force.
func (d Devices) Sets(pool []int, n int) [][]int {
	if n == len(pool) {
		return [][]int{pool}
	}
	rankings := [][]int{d.ranked(pool, func(i int) int64 { return int64(d.Whole[i]) })}
	if d.Measured {
		rankings = append(rankings, d.ranked(pool, func(i int) int64 {
			nearest := schedule.Nanos(math.MaxInt64)
			for _, v := range pool {
				if v != i {
					nearest = min(nearest, d.Near[i][v])
				}
			}
			return int64(d.Whole[i])/int64(n) + int64(nearest)
		}))
		rankings = append(rankings, d.grown(pool, n)...)
	}
	if now := d.priorIn(pool); len(now) == n {
		rankings = append(rankings, now)
	}
	var sets [][]int
	for _, ranking := range rankings {
		set := slices.Clone(ranking[:n])
		slices.Sort(set)
		sets = appendNew(sets, set)
	}
	return sets
}

// grown returns sets that begin with one device, to which the fastest of the near ones are added one by one: the fastest
// device, and devices that are far from those.
func (d Devices) grown(pool []int, n int) (sets [][]int) {
	if len(pool) > growUpTo {
		return nil
	}
	starts := d.ranked(pool, func(i int) int64 { return int64(d.Whole[i]) })
	far := make([]schedule.Nanos, len(d.Whole)) // to the nearest of the starts so far
	for range min(growStarts, len(pool)) {
		begin := starts[0]
		for _, u := range starts {
			if far[u] > far[begin] {
				begin = u
			}
		}
		set := []int{begin}
		near := slices.Clone(d.Near[begin])
		for len(set) < n {
			next, least := -1, int64(0)
			for _, u := range starts {
				if key := int64(d.Whole[u])/int64(n) + int64(near[u]); !slices.Contains(set, u) && (next < 0 || key < least) {
					next, least = u, key
				}
			}
			set = append(set, next)
			for _, u := range pool {
				near[u] = min(near[u], d.Near[next][u])
			}
		}
		sets = append(sets, set)
		for _, u := range pool {
			if len(sets) == 1 || d.Near[begin][u] < far[u] {
				far[u] = d.Near[begin][u]
			}
		}
	}
	return sets
}

// Roomy returns orders that put the most memory first: of each of the sets, and of the n devices that
// have the most.
func (d Devices) Roomy(pool []int, n int) [][]int {
	roomiest := d.RoomiestFirst(pool)[:n]
	slices.Sort(roomiest)
	var orders [][]int
	for _, set := range appendNew(d.Sets(pool, n), roomiest) {
		orders = append(orders, d.RoomiestFirst(set))
	}
	return orders
}

// RoomiestFirst sorts a pool by free memory.
func (d Devices) RoomiestFirst(pool []int) []int {
	return d.ranked(pool, func(i int) int64 { return -d.FreeBytes[i] })
}

// ranked sorts a pool by key, then by the devices' own order.
func (d Devices) ranked(pool []int, key func(i int) int64) []int {
	keys := make(map[int]int64, len(pool))
	for _, device := range pool {
		keys[device] = key(device)
	}
	out := slices.Clone(pool)
	slices.SortFunc(out, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	return out
}

// Orders returns the orders of a set worth a look, the preferred first: of the plan in force;
// neighbours over fast links; for several replicas of several stages also equally fast
// replicas.
func (d Devices) Orders(replicas, stages int, set []int) [][]int {
	var orders [][]int
	if d.Prior != nil {
		orders = append(orders, d.succeed(set))
	}
	if d.Measured {
		orders = appendNew(orders, d.chain(set))
	} else {
		orders = appendNew(orders, set)
	}
	if replicas > 1 && stages > 1 {
		orders = appendNew(orders, d.deal(replicas, set))
	}
	return orders
}

// All returns all orders of all n devices of a small pool.
func All(pool []int, n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var orders [][]int
	for i, device := range pool {
		rest := slices.Delete(slices.Clone(pool), i, i+1)
		for _, order := range All(rest, n-1) {
			orders = append(orders, append([]int{device}, order...))
		}
	}
	return orders
}

func appendNew(lists [][]int, list []int) [][]int {
	if slices.ContainsFunc(lists, func(l []int) bool { return slices.Equal(l, list) }) {
		return lists
	}
	return append(lists, list)
}

// priorIn returns the devices of a set that the plan in force uses, in its order.
func (d Devices) priorIn(set []int) []int {
	var devices []int
	left := d.membership(set)
	for _, device := range d.Prior {
		if device >= 0 && left[device] {
			devices, left[device] = append(devices, device), false
		}
	}
	return devices
}

// membership returns by device whether it is in a set.
func (d Devices) membership(set []int) []bool {
	in := make([]bool, len(d.Whole))
	for _, device := range set {
		in[device] = true
	}
	return in
}

// succeed puts a set in the order of the plan in force; new devices take the places of those
// that are gone, then follow.
func (d Devices) succeed(set []int) []int {
	left := d.membership(set)
	known := d.membership(d.priorIn(set))
	fresh := slices.DeleteFunc(slices.Clone(set), func(device int) bool { return known[device] })
	var order []int
	for _, device := range d.Prior {
		switch {
		case device >= 0 && left[device]:
			order, left[device] = append(order, device), false
		case (device < 0 || !known[device]) && len(fresh) > 0:
			order, fresh = append(order, fresh[0]), fresh[1:]
		}
	}
	return append(order, fresh...)
}

// chain orders a set so that neighbours are near: from each start it goes on to the
// nearest device left; the chain whose longest hop is shortest wins (the bottleneck
// ordering of DT-FM, Yuan et al. 2022, found greedily).
func (d Devices) chain(set []int) []int {
	var best []int
	var bestLongest, bestSum schedule.Nanos
	starts := min(len(set), chainStarts, max(2, chainSteps/(len(set)*len(set))))
	for start := range starts {
		left := slices.Clone(set)
		order := []int{left[start]}
		left = slices.Delete(left, start, start+1)
		var longest, sum schedule.Nanos
		for len(left) > 0 {
			next, near := 0, schedule.Nanos(math.MaxInt64)
			for i, device := range left {
				if hop := d.Near[order[len(order)-1]][device]; hop < near {
					next, near = i, hop
				}
			}
			longest, sum = max(longest, near), sum+near
			order = append(order, left[next])
			left = slices.Delete(left, next, next+1)
		}
		if best == nil || longest < bestLongest || (longest == bestLongest && sum < bestSum) {
			best, bestLongest, bestSum = order, longest, sum
		}
	}
	return best
}

// deal gives each replica devices of every speed: fastest first, to and fro; within a
// replica in the devices' own order.
func (d Devices) deal(replicas int, set []int) []int {
	hands := make([][]int, replicas)
	for i, device := range d.ranked(set, func(i int) int64 { return int64(d.Whole[i]) }) {
		round, r := i/replicas, i%replicas
		if round%2 == 1 {
			r = replicas - 1 - r
		}
		hands[r] = append(hands[r], device)
	}
	var order []int
	for _, hand := range hands {
		slices.Sort(hand)
		order = append(order, hand...)
	}
	return order
}
