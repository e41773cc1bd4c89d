package planner

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

const (
	// chainStarts bounds from how many units a chain is begun, chainSteps the steps that
	// this may take in all.
	chainStarts = 32
	chainSteps  = 1 << 19
)

// selections are the sets of n units of the pool worth a look, each sorted: the fastest;
// where links are measured, the fastest with their best link counted; those of the
// previous plan.
func (c *cluster) selections(pool []int, n int) [][]int {
	if n == len(pool) {
		return [][]int{pool}
	}
	rankings := [][]int{c.ranked(pool, func(u int) int64 { return int64(c.units[u].whole()) })}
	if len(c.links.measured) > 0 {
		rankings = append(rankings, c.ranked(pool, func(u int) int64 {
			nearest := schedule.Nanos(math.MaxInt64)
			for _, v := range pool {
				if v != u {
					nearest = min(nearest, c.near[u][v])
				}
			}
			return int64(c.units[u].whole())/int64(n) + int64(nearest)
		}))
	}
	if now := c.priorIn(pool); len(now) == n {
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

// roomiest is the set of the n units with the most free memory.
func (c *cluster) roomiest(pool []int, n int) []int {
	set := c.ranked(pool, func(u int) int64 { return -c.units[u].free })[:n]
	slices.Sort(set)
	return set
}

// ranked sorts a pool by key, then by the units' own order.
func (c *cluster) ranked(pool []int, key func(u int) int64) []int {
	keys := make(map[int]int64, len(pool))
	for _, u := range pool {
		keys[u] = key(u)
	}
	out := slices.Clone(pool)
	slices.SortFunc(out, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	return out
}

// orders are the orders of a set worth a look, the preferred first: the previous plan's;
// neighbours over fast links; for several replicas of several stages also equally fast
// replicas.
func (c *cluster) orders(s shape, set []int) [][]int {
	var orders [][]int
	if c.prior != nil {
		orders = append(orders, c.succeed(set))
	}
	if len(c.links.measured) > 0 {
		orders = appendNew(orders, c.chain(set))
	} else {
		orders = appendNew(orders, set)
	}
	if s.replicas > 1 && s.stages > 1 {
		orders = appendNew(orders, c.deal(s, set))
	}
	return orders
}

// permutations are all orders of all n units of a small pool.
func permutations(pool []int, n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var orders [][]int
	for i, u := range pool {
		rest := slices.Delete(slices.Clone(pool), i, i+1)
		for _, order := range permutations(rest, n-1) {
			orders = append(orders, append([]int{u}, order...))
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
func (c *cluster) priorIn(set []int) []int {
	var units []int
	left := c.membership(set)
	for _, u := range c.prior {
		if u >= 0 && left[u] {
			units, left[u] = append(units, u), false
		}
	}
	return units
}

// membership is by unit whether it is in a set.
func (c *cluster) membership(set []int) []bool {
	in := make([]bool, len(c.units))
	for _, u := range set {
		in[u] = true
	}
	return in
}

// succeed puts a set in the previous plan's order; new units take the places of those
// that are gone, then follow.
func (c *cluster) succeed(set []int) []int {
	left := c.membership(set)
	known := c.membership(c.priorIn(set))
	fresh := slices.DeleteFunc(slices.Clone(set), func(u int) bool { return known[u] })
	var order []int
	for _, u := range c.prior {
		switch {
		case u >= 0 && left[u]:
			order, left[u] = append(order, u), false
		case (u < 0 || !known[u]) && len(fresh) > 0:
			order, fresh = append(order, fresh[0]), fresh[1:]
		}
	}
	return append(order, fresh...)
}

// chain orders a set so that neighbours are near: from each start it goes on to the
// nearest unit left; the chain whose longest hop is shortest wins (the bottleneck
// ordering of DT-FM, Yuan et al. 2022, found greedily).
func (c *cluster) chain(set []int) []int {
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
			for i, u := range left {
				if d := c.near[order[len(order)-1]][u]; d < near {
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
func (c *cluster) deal(s shape, set []int) []int {
	hands := make([][]int, s.replicas)
	for i, u := range c.ranked(set, func(u int) int64 { return int64(c.units[u].whole()) }) {
		round, r := i/s.replicas, i%s.replicas
		if round%2 == 1 {
			r = s.replicas - 1 - r
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
