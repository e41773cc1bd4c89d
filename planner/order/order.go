package order

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

// Devices are what orders depend on, each by unit.
type Devices struct {
	// Whole is what the whole model takes on a unit per micro-batch.
	Whole     []schedule.Nanos
	FreeBytes []int64
	// Near is what a micro-batch's activation and gradient take between two units, Measured
	// whether anybody measured any of that.
	Near     [][]schedule.Nanos
	Measured bool
	// Prior are the units of the plan in force in its order, -1 for those gone; nil for none.
	Prior []int
}

const (
	// chainStarts bounds from how many units a chain is begun, chainSteps the steps that
	// this may take in all.
	chainStarts = 32
	chainSteps  = 1 << 19
)

// Sets are the sets of n units of the pool worth a look, each sorted: the fastest;
// where links are measured, the fastest with their best link counted; those of the
// previous plan.
func (u Devices) Sets(pool []int, n int) [][]int {
	if n == len(pool) {
		return [][]int{pool}
	}
	rankings := [][]int{u.ranked(pool, func(i int) int64 { return int64(u.Whole[i]) })}
	if u.Measured {
		rankings = append(rankings, u.ranked(pool, func(i int) int64 {
			nearest := schedule.Nanos(math.MaxInt64)
			for _, v := range pool {
				if v != i {
					nearest = min(nearest, u.Near[i][v])
				}
			}
			return int64(u.Whole[i])/int64(n) + int64(nearest)
		}))
	}
	if now := u.priorIn(pool); len(now) == n {
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

// Roomy are orders that put the most memory first: of each of the sets, and of the n units that
// have the most.
func (u Devices) Roomy(pool []int, n int) [][]int {
	roomiest := u.RoomiestFirst(pool)[:n]
	slices.Sort(roomiest)
	var orders [][]int
	for _, set := range appendNew(u.Sets(pool, n), roomiest) {
		orders = append(orders, u.RoomiestFirst(set))
	}
	return orders
}

// RoomiestFirst sorts a pool by free memory.
func (u Devices) RoomiestFirst(pool []int) []int {
	return u.ranked(pool, func(i int) int64 { return -u.FreeBytes[i] })
}

// ranked sorts a pool by key, then by the units' own order.
func (u Devices) ranked(pool []int, key func(i int) int64) []int {
	keys := make(map[int]int64, len(pool))
	for _, unit := range pool {
		keys[unit] = key(unit)
	}
	out := slices.Clone(pool)
	slices.SortFunc(out, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	return out
}

// Orders are the orders of a set worth a look, the preferred first: the previous plan's;
// neighbours over fast links; for several replicas of several stages also equally fast
// replicas.
func (u Devices) Orders(replicas, stages int, set []int) [][]int {
	var orders [][]int
	if u.Prior != nil {
		orders = append(orders, u.succeed(set))
	}
	if u.Measured {
		orders = appendNew(orders, u.chain(set))
	} else {
		orders = appendNew(orders, set)
	}
	if replicas > 1 && stages > 1 {
		orders = appendNew(orders, u.deal(replicas, set))
	}
	return orders
}

// All are all orders of all n units of a small pool.
func All(pool []int, n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var orders [][]int
	for i, unit := range pool {
		rest := slices.Delete(slices.Clone(pool), i, i+1)
		for _, order := range All(rest, n-1) {
			orders = append(orders, append([]int{unit}, order...))
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

// priorIn are those of a set in the previous plan, in its order.
func (u Devices) priorIn(set []int) []int {
	var units []int
	left := u.membership(set)
	for _, unit := range u.Prior {
		if unit >= 0 && left[unit] {
			units, left[unit] = append(units, unit), false
		}
	}
	return units
}

// membership is by unit whether it is in a set.
func (u Devices) membership(set []int) []bool {
	in := make([]bool, len(u.Whole))
	for _, unit := range set {
		in[unit] = true
	}
	return in
}

// succeed puts a set in the previous plan's order; new units take the places of those
// that are gone, then follow.
func (u Devices) succeed(set []int) []int {
	left := u.membership(set)
	known := u.membership(u.priorIn(set))
	fresh := slices.DeleteFunc(slices.Clone(set), func(unit int) bool { return known[unit] })
	var order []int
	for _, unit := range u.Prior {
		switch {
		case unit >= 0 && left[unit]:
			order, left[unit] = append(order, unit), false
		case (unit < 0 || !known[unit]) && len(fresh) > 0:
			order, fresh = append(order, fresh[0]), fresh[1:]
		}
	}
	return append(order, fresh...)
}

// chain orders a set so that neighbours are near: from each start it goes on to the
// nearest unit left; the chain whose longest hop is shortest wins (the bottleneck
// ordering of DT-FM, Yuan et al. 2022, found greedily).
func (u Devices) chain(set []int) []int {
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
			for i, unit := range left {
				if d := u.Near[order[len(order)-1]][unit]; d < near {
					next, near = i, d
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

// deal gives each replica units of every speed: fastest first, to and fro; within a
// replica in the units' own order.
func (u Devices) deal(replicas int, set []int) []int {
	hands := make([][]int, replicas)
	for i, u := range u.ranked(set, func(i int) int64 { return int64(u.Whole[i]) }) {
		round, r := i/replicas, i%replicas
		if round%2 == 1 {
			r = replicas - 1 - r
		}
		hands[r] = append(hands[r], u)
	}
	var order []int
	for _, hand := range hands {
		slices.Sort(hand)
		order = append(order, hand...)
	}
	return order
}
