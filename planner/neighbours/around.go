package neighbours

import (
	"iter"
	"slices"
)

// around returns the neighbours of an arrangement: other cuts first, then other devices in its places, then other stages.
func (w *Walk) around(a Arrangement) iter.Seq[Arrangement] {
	return func(yield func(Arrangement) bool) {
		_ = a.shift(yield) && w.reorder(a, yield) && w.resize(a, yield)
	}
}

// shift moves one layer over a boundary of a single pipeline. Replicas keep their cuts: where these are alike, one goes on with the
// layers of another's lost node. Like the others it reports whether to go on.
func (a Arrangement) shift(yield func(Arrangement) bool) bool {
	for at := range len(a.Ends) - 1 {
		for _, by := range []int{-1, 1} {
			ends := slices.Clone(a.Ends)
			ends[at] += by
			first := 0
			if at > 0 {
				first = ends[at-1]
			}
			if ends[at] > first && ends[at] < ends[at+1] && !yield(Arrangement{a.Replicas, a.Devices, ends}) {
				return false
			}
		}
	}
	return true
}

// reorder has two devices change places, and puts another one in the place of each.
func (w *Walk) reorder(a Arrangement, yield func(Arrangement) bool) bool {
	for i := range a.Devices {
		for j := i + 1; j < len(a.Devices); j++ {
			next := slices.Clone(a.Devices)
			next[i], next[j] = next[j], next[i]
			if !w.with(a, next, yield) {
				return false
			}
		}
		for _, d := range w.Pool {
			if slices.Contains(a.Devices, d) {
				continue
			}
			next := slices.Clone(a.Devices)
			next[i] = d
			if !w.with(a, next, yield) {
				return false
			}
		}
	}
	return true
}

// with yields an arrangement with other devices.
func (w *Walk) with(a Arrangement, devices []int, yield func(Arrangement) bool) bool {
	if w.KeepCuts && a.Ends != nil && !yield(Arrangement{a.Replicas, devices, a.Ends}) {
		return false
	}
	return yield(Arrangement{Replicas: a.Replicas, Devices: devices})
}

// resize leaves a stage of a single pipeline out, puts one elsewhere, and adds one.
func (w *Walk) resize(a Arrangement, yield func(Arrangement) bool) bool {
	if a.Replicas > 1 {
		return true
	}
	for i, device := range a.Devices {
		fewer := slices.Delete(slices.Clone(a.Devices), i, i+1)
		if len(fewer) >= max(1, w.FewestStages) && !(w.leave(a, i, yield) && yield(Arrangement{Replicas: 1, Devices: fewer})) {
			return false
		}
		for at := range a.Devices {
			if !yield(Arrangement{Replicas: 1, Devices: slices.Insert(slices.Clone(fewer), at, device)}) {
				return false
			}
		}
	}
	if len(a.Devices) >= w.MostStages {
		return true
	}
	for _, d := range w.Pool {
		for at := 0; at <= len(a.Devices) && !slices.Contains(a.Devices, d); at++ {
			if !yield(Arrangement{Replicas: 1, Devices: slices.Insert(slices.Clone(a.Devices), at, d)}) {
				return false
			}
		}
	}
	return true
}

// leave yields a pipeline without one of its stages, whose layers go to the stage after it or the one before.
func (w *Walk) leave(a Arrangement, stage int, yield func(Arrangement) bool) bool {
	for _, end := range []int{stage, stage - 1} {
		if !w.KeepCuts || a.Ends == nil || end < 0 || end == len(a.Ends)-1 {
			continue
		}
		fewer, ends := slices.Delete(slices.Clone(a.Devices), stage, stage+1), slices.Delete(slices.Clone(a.Ends), end, end+1)
		if !yield(Arrangement{1, fewer, ends}) {
			return false
		}
	}
	return true
}
