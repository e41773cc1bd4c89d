package neighbours

import (
	"fmt"
	"maps"
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
		{"few tries", 1, 5, Arrangement{1, []int{0, 1, 2}, []int{2, 4, 6}}, 15, 5, 1, 4},
		{"one device", 1, 2, Arrangement{1, []int{4}, []int{4}}, 1000, 4 + 1 + 8, 2, 0},
	} {
		w := &Walk{Pool: []int{0, 1, 2, 3, 4}, FewestStages: c.fewest, MostStages: c.most, Left: c.left}
		tried, sizes, recuts, work := map[string]bool{}, map[int]bool{}, 0, 0
		w.Try = func(a Arrangement) (Arrangement, bool) {
			check(t, w, a)
			if key := fmt.Sprint(a); tried[key] {
				t.Errorf("%s: %s was tried before", c.name, key)
			} else {
				tried[key] = true
			}
			work += len(a.Devices)
			if sizes[len(a.Devices)] = true; a.Ends != nil {
				recuts++
			}
			return a, false
		}
		w.From(c.from)
		if len(tried) != c.want || len(sizes) != c.sizes || recuts != c.recuts || w.Left != c.left-work {
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
	w := &Walk{Pool: []int{0, 1, 2, 3, 4, 5, 6, 7}, FewestStages: 1, MostStages: 4, Left: 4000}
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

// TestWalkTriesLikeDevicesOnce: of arrangements that differ in like devices alone one is tried.
func TestWalkTriesLikeDevicesOnce(t *testing.T) {
	for _, c := range []struct {
		like []int
		want int
	}{
		{nil, 1 + 2*3 + 2 + 1 + 3*3},                // an exchange, 3 others in 2 places, 2 times a stage less, another cut, 3 others in 3 places
		{[]int{0, 1, 0, 0, 4}, 1 + 2*2 + 2 + 2 + 3}, // 2 in the place of 0 is another cut, and beside 0 the same on either side
	} {
		w := &Walk{Pool: []int{0, 1, 2, 3, 4}, Like: c.like, FewestStages: 1, MostStages: 5, Left: 1000}
		tried := map[string]bool{}
		w.Try = func(a Arrangement) (Arrangement, bool) {
			tried[fmt.Sprint(a)] = true
			return a, false
		}
		if w.From(Arrangement{1, []int{0, 1}, []int{1, 2}}); len(tried) != c.want {
			t.Errorf("like %v: %d tries, want %d: %v", c.like, len(tried), c.want, slices.Sorted(maps.Keys(tried)))
		}
	}
}

// TestWalkKeepsCuts: others take over the layers as they are cut.
func TestWalkKeepsCuts(t *testing.T) {
	w := &Walk{Pool: []int{0, 1, 2, 3}, FewestStages: 2, MostStages: 3, KeepCuts: true, Left: 1000}
	tried := map[string]bool{}
	w.Try = func(a Arrangement) (Arrangement, bool) {
		check(t, w, a)
		tried[fmt.Sprint(a.Devices, a.Ends)] = true
		return a, false
	}
	w.From(Arrangement{1, []int{0, 1, 2}, []int{1, 3, 6}})
	for _, want := range []string{"[1 0 2] [1 3 6]", "[1 0 2] []", "[0 3 2] [1 3 6]", "[0 3 2] []", "[0 2] [3 6]", "[0 2] [1 6]", "[0 1] [1 6]", "[1 2] [3 6]", "[1 2] []"} {
		if !tried[want] {
			t.Errorf("%s is not tried", want)
		}
	}
}

// TestWalkSkips what its caller sees to be no better, with less work.
func TestWalkSkips(t *testing.T) {
	w := &Walk{Pool: []int{0, 1, 2, 3}, FewestStages: 2, MostStages: 2, Left: 1000}
	w.Skip = func(a Arrangement) bool { return slices.Contains(a.Devices, 3) }
	tries := 0
	w.Try = func(a Arrangement) (Arrangement, bool) {
		if tries++; w.Skip(a) {
			t.Errorf("%v is tried", a)
		}
		return a, false
	}
	if w.From(Arrangement{1, []int{0, 1}, []int{1, 2}}); tries != 4 || w.Left != 1000-2*4-2 {
		t.Errorf("%d tries, %d left", tries, w.Left)
	}
}
