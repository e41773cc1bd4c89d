package order

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/schedule"
)

// random are n units, with some of a plan in force among them.
func random(rng *rand.Rand, n int) (u Devices, pool []int) {
	u = Devices{Measured: rng.IntN(2) == 0, Near: make([][]schedule.Nanos, n)}
	for i := range n {
		pool = append(pool, i)
		u.Whole, u.FreeBytes = append(u.Whole, 1+schedule.Nanos(rng.IntN(50))), append(u.FreeBytes, rng.Int64N(50))
		u.Near[i] = make([]schedule.Nanos, n)
		for j := range i {
			u.Near[i][j] = schedule.Nanos(rng.IntN(50))
			u.Near[j][i] = u.Near[i][j]
		}
	}
	if rng.IntN(2) == 0 {
		u.Prior = append(rng.Perm(n)[:1+rng.IntN(n)], -1)
	}
	return u, pool
}

// TestOrdersAreOfTheirSets: whatever is proposed has each unit of its set once, and no two
// proposals are the same.
func TestOrdersAreOfTheirSets(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		u, pool := random(rng, 1+rng.IntN(9))
		n := 1 + rng.IntN(len(pool))
		sets := u.Sets(pool, n)
		for _, set := range sets {
			checkSets(t, [][]int{set}, n)
			orders := u.Orders(max(1, n/2), 2, set)
			checkSets(t, orders, n)
			for i, order := range orders {
				if slices.ContainsFunc(orders[:i], func(o []int) bool { return slices.Equal(o, order) }) {
					t.Errorf("%v is proposed twice", order)
				}
				if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, set) {
					t.Errorf("%v is no order of %v", order, set)
				}
			}
		}
		roomy := u.Roomy(pool, n)
		checkSets(t, roomy, n)
		if most := u.RoomiestFirst(pool)[:n]; !slices.ContainsFunc(roomy, func(o []int) bool { return slices.Equal(o, most) }) {
			t.Errorf("%v have the most memory and are not among %v", most, roomy)
		}
	}
}

func checkSets(t *testing.T, sets [][]int, n int) {
	t.Helper()
	for _, set := range sets {
		if sorted := slices.Sorted(slices.Values(set)); len(set) != n || len(slices.Compact(sorted)) != n {
			t.Errorf("%v are not %d units", set, n)
		}
	}
}

// TestSetsOfOneSite: of devices at two sites, with the fastest ones spread over both, each site's own are a set worth a look.
func TestSetsOfOneSite(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	u, pool := random(rng, 8)
	u.Measured, u.Prior = true, nil
	for i := range pool {
		u.Whole[i] = 40 + schedule.Nanos(i/2) // devices 0 and 1 are the fastest
		for j := range pool {
			if u.Near[i][j] = 1; i%2 != j%2 {
				u.Near[i][j] = 1000
			}
		}
	}
	sets := u.Sets(pool, 4)
	for _, site := range [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}} {
		if !slices.ContainsFunc(sets, func(set []int) bool { return slices.Equal(set, site) }) {
			t.Errorf("%v is not among %v", site, sets)
		}
	}
}

// TestNeighboursAreNear: units along a line come in the line's order, wherever they stand among
// the others; those of a plan in force keep its order, and who is new takes the place of who left.
func TestNeighboursAreNear(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	line := rng.Perm(7) // by unit: where it is
	u, pool := random(rng, len(line))
	u.Measured, u.Prior = true, nil
	for i := range line {
		for j := range line {
			u.Near[i][j] = schedule.Nanos((line[i] - line[j]) * (line[i] - line[j]))
		}
	}
	order := u.Orders(1, len(pool), pool)[0]
	for i := 1; i < len(order); i++ {
		if d := line[order[i]] - line[order[i-1]]; d*d != 1 {
			t.Fatalf("units at %v in order %v", line, order)
		}
	}
	u.Prior = []int{4, -1, 2}
	if got := u.Orders(1, 3, []int{1, 2, 4})[0]; !slices.Equal(got, []int{4, 1, 2}) {
		t.Errorf("after 4, one that is gone and 2: %v, want 4, 1 and 2", got)
	}
}

func TestAllOrders(t *testing.T) {
	if all := All([]int{3, 5, 8}, 2); len(all) != 6 || !slices.Equal(all[3], []int{5, 8}) {
		t.Errorf("orders of two of three: %v", all)
	}
}
