package neighbours

import (
	"fmt"
	"slices"
	"testing"
)

// check wants an arrangement to be one: each device once and of the pool, every stage with a layer.
func check(t *testing.T, w *Walk, a Arrangement) {
	t.Helper()
	if stages := len(a.Devices) / a.Replicas; a.Replicas == 1 && (stages < w.FewestStages || stages > w.MostStages) || len(a.Devices)%a.Replicas > 0 {
		t.Errorf("%v has %d stages, want %d to %d", a, stages, w.FewestStages, w.MostStages)
	}
	sorted := slices.Sorted(slices.Values(a.Devices))
	if len(slices.Compact(sorted)) < len(a.Devices) || slices.ContainsFunc(a.Devices, func(d int) bool { return !slices.Contains(w.Pool, d) }) {
		t.Errorf("%v uses a device twice, or one that is not of %v", a, w.Pool)
	}
	for i, end := range a.Ends {
		if end <= append([]int{0}, a.Ends...)[i] {
			t.Errorf("%v has a stage without a layer", a)
		}
	}
}

// TestWalkTriesAllOnce: where nothing is better, every neighbour is tried once, and no more of them than are left.
func TestWalkTriesAllOnce(t *testing.T) {
	for _, c := range []struct {
		name          string
		fewest, most  int
		from          Arrangement
		left, want    int
		sizes, recuts int // how many lengths of pipelines, how many cuts
	}{
		// 4 cuts, 3 exchanges, 2 others in 3 places, 3 times a stage less, 3 orders that no exchange makes, 2 others in 4 places.
		{"a pipeline", 1, 5, Arrangement{1, []int{0, 1, 2}, []int{2, 4, 6}}, 1000, 4 + 3 + 6 + 3 + 3 + 8, 3, 4},
		{"stages that are asked for", 3, 3, Arrangement{1, []int{0, 1, 2}, []int{2, 4, 6}}, 1000, 4 + 3 + 6 + 3, 1, 4},
		{"two replicas", 1, 5, Arrangement{2, []int{0, 1, 2, 3}, nil}, 1000, 6 + 4, 1, 0},
		{"full stages", 1, 5, Arrangement{1, []int{0, 1, 2}, []int{1, 2, 3}}, 1000, 3 + 6 + 3 + 3 + 8, 3, 0},
		{"few tries", 1, 5, Arrangement{1, []int{0, 1, 2}, []int{2, 4, 6}}, 5, 5, 1, 4},
		{"one device", 1, 2, Arrangement{1, []int{4}, []int{4}}, 1000, 4 + 1 + 8, 2, 0},
	} {
		w := &Walk{Pool: []int{0, 1, 2, 3, 4}, FewestStages: c.fewest, MostStages: c.most, Left: c.left}
		tried, sizes, recuts := map[string]bool{}, map[int]bool{}, 0
		w.Try = func(a Arrangement) (Arrangement, bool) {
			check(t, w, a)
			if key := fmt.Sprint(a); tried[key] {
				t.Errorf("%s: %s was tried before", c.name, key)
			} else {
				tried[key] = true
			}
			if sizes[len(a.Devices)] = true; a.Ends != nil {
				recuts++
			}
			return a, false
		}
		w.From(c.from)
		if len(tried) != c.want || len(sizes) != c.sizes || recuts != c.recuts || w.Left != c.left-c.want {
			t.Errorf("%s: %d tries of %d sizes and %d cuts, %d left", c.name, len(tried), len(sizes), recuts, w.Left)
		}
		if w.From(c.from); len(tried) > c.want {
			t.Errorf("%s: the same again is tried", c.name)
		}
	}
}

// TestWalkGetsThere: by small changes from the first devices to the last ones in falling order.
func TestWalkGetsThere(t *testing.T) {
	worth := func(a Arrangement) (sum int) {
		for i, d := range a.Devices {
			sum += d * (10 - i)
		}
		return sum
	}
	w := &Walk{Pool: []int{0, 1, 2, 3, 4, 5, 6, 7}, FewestStages: 1, MostStages: 4, Left: 1000}
	best := Arrangement{Replicas: 1, Devices: []int{0, 1}}
	w.Try = func(a Arrangement) (Arrangement, bool) {
		check(t, w, a)
		if worth(a) <= worth(best) {
			return a, false
		}
		best = a
		return a, true
	}
	if w.From(best); !slices.Equal(best.Devices, []int{7, 6, 5, 4}) {
		t.Errorf("the walk ends at %v", best)
	}
}
