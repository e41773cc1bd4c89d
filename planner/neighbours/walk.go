package neighbours

import (
	"fmt"
	"slices"
)

// Arrangement holds devices in order, cut into equally long replicas: the first devices are the stages of replica 0.
type Arrangement struct {
	Replicas int
	Devices  []int
	// Ends has by stage of a single pipeline the layer after its last one. nil leaves the cut to whoever tries the arrangement.
	Ends []int
}

// Walk goes from arrangements to better ones.
type Walk struct {
	// Pool are the devices that may get a place.
	Pool []int
	// Like has by device a number that only devices have in common of which one does as well as another in any place; nil for none.
	// Of arrangements that differ in such devices alone one is tried.
	Like []int
	// A single pipeline has FewestStages to MostStages.
	FewestStages, MostStages int
	// KeepCuts has another device, and the neighbours of one that is left out, also take over the layers as they are cut.
	KeepCuts bool
	// Left is the work that may still be done: an arrangement of n devices counts as n, one that is skipped as 1.
	Left int
	// Skip reports of an arrangement, with little work, that it is not better; nil skips none.
	Skip func(Arrangement) bool
	// Try takes an arrangement that is better than the one before. It returns that with the cut that it got.
	Try func(Arrangement) (taken Arrangement, better bool)

	tried map[string]bool
}

// From goes on from an arrangement until no neighbour is better. It tries none twice, wherever it began.
func (w *Walk) From(at Arrangement) {
	for w.Left > 0 {
		next, better := w.step(at)
		if !better {
			return
		}
		at = next
	}
}

// step returns the first neighbour that is better.
func (w *Walk) step(at Arrangement) (taken Arrangement, better bool) {
	for next := range w.around(at) {
		if w.Left <= 0 {
			break
		}
		if !w.isNew(next) {
			continue
		}
		if w.Skip != nil && w.Skip(next) {
			w.Left--
			continue
		}
		w.Left -= len(next.Devices)
		if taken, better = w.Try(next); better {
			return taken, true
		}
	}
	return Arrangement{}, false
}

// isNew reports whether an arrangement has not been tried, and notes it.
func (w *Walk) isNew(a Arrangement) bool {
	if w.tried == nil {
		w.tried = map[string]bool{}
	}
	named := slices.Clone(a.Devices)
	for i, d := range named {
		if w.Like != nil {
			named[i] = w.Like[d]
		}
	}
	key := fmt.Sprint(a.Replicas, named, a.Ends)
	known := w.tried[key]
	w.tried[key] = true
	return !known
}
